"""The estimate of how much of a state has changed."""

from holdfast.core.state.change_sample import ChangeSample
from holdfast.core.state.page_manager import PageManager

PAGE = 8 << 10


def test_a_small_state_is_compared_as_a_whole() -> None:
    pages = PageManager()
    kept, gone = pages.create_page_set(), pages.create_page_set()
    pages.allocate(kept, 10)
    pages.allocate(gone, 5)
    sample = ChangeSample(pages)
    assert sample.changed_bytes() == 0
    for sequence in (0, 3, 9):
        pages.writable(kept, sequence)[7] = 1
    assert sample.changed_bytes() == 3 * PAGE
    pages.writable(gone, 0)[0] = 1
    pages.destroy_page_set(gone)
    assert sample.changed_bytes() == 3 * PAGE  # Nothing of it would have to be copied.


def test_pages_that_have_come_since_count() -> None:
    pages = PageManager()
    old = pages.create_page_set()
    pages.allocate(old, 2)
    sample = ChangeSample(pages)
    pages.allocate(old, 3)
    new = pages.create_page_set()
    pages.allocate(new, 4)
    assert sample.changed_bytes() == 7 * PAGE


def test_writing_the_same_again_is_no_change() -> None:
    pages = PageManager()
    page_set = pages.create_page_set()
    pages.allocate(page_set, 1)
    pages.writable(page_set, 0)[5] = 9
    sample = ChangeSample(pages)
    pages.writable(page_set, 0)[5] = 9
    assert sample.changed_bytes() == 0


def test_a_large_state_is_estimated_within_a_tenth() -> None:
    pages = PageManager()
    page_set = pages.create_page_set()
    pages.allocate(page_set, 4_000)
    estimates = []
    for number in range(20):
        sample = ChangeSample(pages, number)
        for sequence in range(number, 4_000, 4):
            pages.writable(page_set, sequence)[0] += 1
        estimates.append(sample.changed_bytes())
    mean = sum(estimates) / len(estimates)
    assert abs(mean / (1_000 * PAGE) - 1) < 0.1


def test_the_sample_follows_pages_that_a_checkpoint_has_had_cloned() -> None:
    pages = PageManager()
    page_set = pages.create_page_set()
    pages.allocate(page_set, 2)
    snapshot = pages.checkpoint()
    sample = ChangeSample(pages)
    pages.writable(page_set, 1)[0] = 4
    assert sample.changed_bytes() == PAGE
    pages.finish(snapshot)


def test_no_state_does_not_change() -> None:
    assert ChangeSample(PageManager()).changed_bytes() == 0
