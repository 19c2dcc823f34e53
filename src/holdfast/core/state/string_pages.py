"""Strings in pages, each stored once; a string may span pages. [SGuard §4, raw pages]

Arrays, maps and structs are stored as the byte strings of `nested_values.py`.

A reference is the logical address of the string plus one; 0 stands for null. Buckets as in
`unordered_map.py`; a string's words are: length in bytes, hash, link, then its bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.nested_values import from_bytes, to_bytes
from holdfast.core.model.stable_hash import string_parts, validity
from holdfast.core.state import hash_kernels, kernels, string_kernels
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.unordered_map import create_buckets, require_shape

_SHAPE = (-1, -1)
"""What the header has where a map's says how wide its records are."""
_INT32_MAX = 2**31 - 1


class StringPages:
    """Deduplicated byte strings of any length."""

    def __init__(
        self, manager: PageManager, page_sets: tuple[PageSetId, ...] | None = None
    ) -> None:
        """Create it empty, taking two pages at once, or find it as a checkpoint holds it.

        Args:
            manager: Of the pages.
            page_sets: Its two page sets, when a record elsewhere names them; else it makes them.

        Raises:
            StateLimitExceeded: No page is left.
        """
        self._manager = manager
        self.page_sets = page_sets or (manager.create_page_set(), manager.create_page_set())
        self._bucket_set, self._text_set = self.page_sets
        if len(manager.pages_of(self._bucket_set)):
            require_shape(manager, self._bucket_set, _SHAPE)
        else:
            create_buckets(manager, self._bucket_set, _SHAPE)

    def __len__(self) -> int:
        return int(self._manager.resolve(self._bucket_set, 0)[kernels.ENTRIES])

    @property
    def text_pages(self) -> np.ndarray:
        """Page table of the strings."""
        return self._manager.pages_of(self._text_set)

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        return len(self._manager.pages_of(self._bucket_set)) + len(self.text_pages)

    def intern(self, column: pa.Array) -> np.ndarray:
        """References of a column of strings, bytes or nested values, int64 (n,); 0 for null.

        Raises:
            StateLimitExceeded: No page is left; earlier rows were stored.
        """
        if is_nested(column.type):
            column = to_bytes(column)
        return self._stored(column, string_kernels.intern_strings)

    def append(self, column: pa.Array) -> np.ndarray:
        """References of byte strings, none of them empty, each stored anew; 0 for null.

        Before the page manager lets go of the pass, a kernel may have each of them continue another
        string, which is not copied for that; `gather` gives both as one.

        Raises:
            StateLimitExceeded: No page is left; earlier rows were stored.
        """
        return self._stored(column, string_kernels.append_strings)

    def _stored(self, column: pa.Array, store: Callable[..., int]) -> np.ndarray:
        offsets, data = string_parts(column)
        mask = validity(column)
        references = np.empty(len(column), dtype=np.int64)
        manager = self._manager
        done = 0
        while done < len(references):
            manager.make_room()
            done = store(
                manager.arena,
                manager.marks,
                manager.free,
                manager.shift,
                manager.pages_of(self._bucket_set),
                self.text_pages,
                offsets,
                data,
                mask,
                done,
                references,
            )
            if done < len(references):
                self._grow(int(offsets[done + 1] - offsets[done]))
        return references

    def gather(self, references: np.ndarray, kind: pa.DataType) -> pa.Array:
        """The values of references, int64 (n,), as an array of type `kind`; 0 gives null."""
        if is_nested(kind):
            return from_bytes(self.gather(references, pa.large_binary()), kind)
        manager = self._manager
        n = len(references)
        offsets = np.empty(n + 1, dtype=np.int64)
        total = string_kernels.string_offsets(
            manager.arena, manager.shift, self.text_pages, references, offsets
        )
        data = np.empty(total, dtype=np.uint8)
        string_kernels.read_strings(
            manager.arena, manager.shift, self.text_pages, references, offsets, data
        )
        is_null = references == 0
        bitmap = None
        if bool(is_null.any()):
            bitmap = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
        is_narrow = (pa.types.is_string(kind) or pa.types.is_binary(kind)) and total <= _INT32_MAX
        if is_narrow:
            small = pa.py_buffer(offsets.astype(np.int32))
            return pa.Array.from_buffers(kind, n, [bitmap, small, pa.py_buffer(data)])
        t = pa.types
        is_string = t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)
        if t.is_dictionary(kind):
            is_string = not t.is_binary(kind.value_type)
        wide = pa.large_string() if is_string else pa.large_binary()
        array = pa.Array.from_buffers(wide, n, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])
        if t.is_dictionary(kind):
            return array.cast(kind.value_type).dictionary_encode().cast(kind)
        return array if array.type == kind else array.cast(kind)

    def destroy(self) -> None:
        """Release all its pages; references become invalid."""
        self._manager.destroy_page_set(self._bucket_set)
        self._manager.destroy_page_set(self._text_set)

    def _grow(self, length: int) -> None:
        """Allocate what a string of `length` bytes lacks."""
        manager = self._manager
        header = manager.resolve(self._bucket_set, 0)
        words = string_kernels.STRING_HEADER_WORDS + (length + 7) // 8
        last = int(header[hash_kernels.NEXT_FREE]) + words - 1
        buckets = int(header[hash_kernels.BUCKETS])
        missing = (last >> manager.shift) + 1 - len(self.text_pages)
        if missing > 0:
            spare = min(len(self.text_pages) // 2, manager.pages_left)
            manager.allocate(self._text_set, max(missing, spare))
        bucket_pages = len(manager.pages_of(self._bucket_set))
        if (buckets >> manager.shift) + 1 >= bucket_pages:
            manager.allocate(self._bucket_set, max(1, min(bucket_pages // 2, manager.pages_left)))


def moved(references: np.ndarray, source: StringPages, target: StringPages) -> np.ndarray:
    """The strings of references, int64 of any shape, in another store; their references there."""
    column = source.gather(np.ascontiguousarray(references).reshape(-1), pa.large_binary())
    return target.intern(column).reshape(references.shape)
