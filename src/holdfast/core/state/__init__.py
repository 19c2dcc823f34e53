"""Memory management middleware: all operator state lives in pages. [SGuard §4]

Everything stands on the page manager. SGuard's page layouts (§4.2) and structures (§4.3) are here:

| layout | structure             | here                     | linked by                           |
| ------ | --------------------- | ------------------------ | ----------------------------------- |
| list   | list                  | `PagedList`              | nothing: page = number // per page  |
| map    | ordered map, T-tree   | `OrderedMap`             | parent, left and right page         |
|        | unordered map, linear | `UnorderedMap`           | the next record of the bucket       |
|        | hash                  |                          |                                     |
| queue  |                       | `PagedDeque`, one way    | as the deque                        |
| deque  |                       | `PagedDeque`             | previous and next page, in a ring   |
| raw    |                       | `RawPage`, `StringPages` | nothing; the next string of the     |
|        |                       |                          | bucket                              |

Each keeps its counts and roots in the super page, the first of its (first) page set. No page holds
its own PageID: a checkpoint tells pages by their position in the page tables. And none has a
second form in memory, as SGuard proposes for speed: resolving a PageID is one look into an array.
"""
