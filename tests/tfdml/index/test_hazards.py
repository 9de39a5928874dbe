"""Galleries and queries on which ScaNN ends the process or answers with wrong ids."""

from tests.support.hazards import METHODS, run


@METHODS
def test_nan_or_infinity_in_the_gallery_is_refused(method):
    printed = run(
        """
        for value in (np.nan, np.inf, -np.inf):
            for row in (0, 2999):
                bad = gallery.copy()
                bad[row, 3] = value
                refused(lambda: ScannIndex.build(bad))
                refused(lambda: ScannIndex.build(bad, metric="dot_product"))
        """,
        method,
    )
    assert printed.count("`embeddings` must be finite") == 12
    assert printed.count("row 2999") == 6


def test_nan_outside_the_training_sample_is_refused():
    # ScaNN trains on 100,000 rows; it crashes later on a NaN among the others.
    printed = run(
        """
        bad = np.ones((120_000, 2), np.float32)
        bad[-1] = np.nan
        refused(lambda: ScannIndex.build(bad))
        """
    )
    assert "`embeddings` must be finite in float32" in printed
    assert "row 119999" in printed


@METHODS
def test_nan_query_is_refused(method):
    printed = run(
        """
        index = ScannIndex.build(gallery)
        for value in (np.nan, np.inf, 1e39):
            queries = gallery[:5].copy()
            queries[2, 0] = value
            refused(lambda: index.search(queries))
        """,
        method,
    )
    assert printed.count("`queries` must be finite in float32") == 3
    assert printed.count("row 2") == 3


@METHODS
def test_huge_k_takes_no_memory_and_k_below_one_is_refused(method):
    printed = run(
        """
        import resource
        # It starts at the peak of the process that started this one.
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        index = ScannIndex.build(gallery)
        for state in ("built", "changed", "filtered"):
            where = None
            if state == "changed":
                index.add(gallery[:1], [3000], {"class": ["x"]})
                index.remove([7])
            if state == "filtered":
                where = {"class": "x"}
            for k in (3000, 3001, 10**9, 2**63, 2**70):
                ids, scores = index.search(gallery[:2], k=k, where=where)
                wanted = 1 if where else 3000
                assert ids.shape == scores.shape == (2, wanted)
                assert all(len(set(row)) == wanted for row in ids.tolist())
                assert np.isfinite(scores).all()
                assert (ids != 7).all() or state == "built"
        for k in (0, -1, -(10**9)):
            refused(lambda: index.search(gallery[:2], k=k))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert after - before < 2**20  # KiB; ScaNN would take 16 GB
        """,
        method,
    )
    assert printed.count("`k` must be a whole number of at least 1") == 3


@METHODS
def test_every_k_gets_k_different_rows(method):
    run(
        """
        index = ScannIndex.build(gallery, ids=[f"item-{i}" for i in range(3000)])
        for k in (1, 60, 500, 2999, 3000):
            ids, scores = index.search(gallery[:20], k=k)
            assert ids.shape == scores.shape == (20, k)
            assert np.isfinite(scores).all()
            assert all(len(set(row)) == k for row in ids.tolist())
        """,
        method,
    )


def test_padding_is_never_returned():
    # Two leaves of 55 hold about 109 rows. Where they hold fewer than k, ScaNN
    # fills up with id 0 and NaN; the margins that make this rare are taken away.
    run(
        """
        import dataclasses
        from tfdml.index.scann._searcher import ScannSettings
        ScannSettings.candidates = lambda self, k, rows: k
        ScannSettings.leaves_for = lambda self, k, rows: 2
        index = ScannIndex.build(gallery)
        searcher = index._table.snapshot.searcher
        queries = gallery[:200].astype(np.float32)
        rows, scores = searcher._call(queries, searcher._asked(100)[1])
        assert np.isnan(scores).any(axis=1).sum() > 10
        for removed in ([], [0], [0, 5, 1500]):
            index.remove([row for row in removed if row in index])
            ids, scores = index.search(queries, k=100)
            assert np.isfinite(scores).all()
            assert all(len(set(row)) == 100 for row in ids.tolist())
            assert not np.isin(ids, removed).any()
        """
    )


def test_answer_that_stays_short_is_an_error():
    # Should ScaNN pad even when it searches everything, nobody gets to see it.
    run(
        """
        index = ScannIndex.build(gallery)
        class Short:
            def search_batched(self, queries, final_num_neighbors, **settings):
                shape = (len(queries), final_num_neighbors)
                return np.zeros(shape, np.uint32), np.full(shape, np.nan, np.float32)
        index._table.snapshot.searcher._searcher = Short()
        try:
            index.search(gallery[:2], k=3)
        except RuntimeError as error:
            assert "fewer than k=3 of 3000 rows" in str(error)
        else:
            raise SystemExit("was not refused")
        """
    )


@METHODS
def test_empty_batch_of_queries_is_answered(method):
    run(
        """
        index = ScannIndex.build(gallery)
        ids, scores = index.search(np.empty((0, 8)), k=5)
        assert ids.shape == scores.shape == (0, 5)
        """,
        method,
    )


@METHODS
def test_query_of_another_dimension_is_refused(method):
    printed = run(
        """
        index = ScannIndex.build(gallery)
        refused(lambda: index.search(np.ones((2, 7))))
        refused(lambda: index.search(np.ones((2, 9))))
        refused(lambda: index.search(np.ones((2, 0))))
        """,
        method,
    )
    assert printed.count("`queries` must have the dimension of the index, 8.") == 2


def test_complex_numbers_are_refused():
    printed = run(
        """
        refused(lambda: ScannIndex.build(gallery * 1j))
        index = ScannIndex.build(gallery)
        refused(lambda: index.search(gallery[:2] * 1j))
        refused(lambda: index.add(gallery[:2] * 1j, [5000, 5001]))
        refused(lambda: index.update([0, 1], gallery[:2] * 1j))
        assert len(index) == 3000
        finds(index, gallery[:50], range(50))
        """
    )
    embeddings = "`embeddings` must hold real numbers. Received: dtype=complex128."
    assert printed.count(embeddings) == 3
    assert "`queries` must hold real numbers. Received: dtype=complex128." in printed


def test_zero_vector_is_refused_by_cosine():
    printed = run(
        """
        index = ScannIndex.build(gallery)
        refused(lambda: index.search(np.zeros((1, 8))))
        bad = gallery.copy()
        bad[1234] = 0
        refused(lambda: ScannIndex.build(bad))
        """
    )
    assert "`queries` must not have a row of zeros" in printed
    assert "`embeddings` must not have a row of zeros" in printed
    assert "row 1234" in printed


@METHODS
def test_galleries_without_spread_are_searched(method):
    run(
        """
        for rows in (
            np.ones((3000, 8)),
            np.repeat(gallery[:3], 1000, axis=0),
            np.zeros((3000, 8)),
            np.zeros((3000, 8)) + (np.arange(3000) == 5)[:, None],
            gallery[:, :1],
            gallery[:, :3],
        ):
            index = ScannIndex.build(rows, metric="dot_product")
            ids, scores = index.search(rows[:10], k=50)
            assert np.isfinite(scores).all()
            assert all(len(set(row)) == 50 for row in ids.tolist())
        """,
        method,
    )


def test_duplicate_ids_are_refused():
    printed = run("refused(lambda: ScannIndex.build(gallery, ids=[7] * 3000))")
    assert "`ids` must not repeat. Received: 7 3000 times." in printed


@METHODS
def test_eight_threads_search_at_once(method):
    run(
        """
        index = ScannIndex.build(gallery)
        expected = index.search(gallery[:200], k=10)
        wrong = []
        def search():
            for _ in range(15):
                found = index.search(gallery[:200], k=10)
                if not (found.ids == expected.ids).all():
                    wrong.append(found)
        threads = [threading.Thread(target=search) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        """,
        method,
    )


def test_threads_batch_size_and_leaves_of_scann_cannot_be_set():
    # ScaNN divides by a batch size of 0, crashes on 0 threads, and returns nothing
    # from 0 leaves.
    run(
        """
        methods = [
            getattr(index_class, name)
            for index_class in (ExactIndex, ScannIndex)
            for name in (
                "build", "add", "update", "remove", "search", "compact", "load"
            )
        ]
        for method in methods:
            names = set(inspect.signature(method).parameters)
            assert not names & {
                "threads", "num_threads", "batch_size", "leaves", "leaves_to_search",
                "num_leaves_to_search", "pre_reorder_num_neighbors", "settings",
                "training_sample_size",
            }, names
            kinds = [p.kind for p in inspect.signature(method).parameters.values()]
            assert inspect.Parameter.VAR_KEYWORD not in kinds
        assert not hasattr(ScannIndex.build(gallery), "set_num_threads")
        """
    )
