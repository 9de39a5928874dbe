"""Changes on which ScaNN ends the process or mixes up its ids, and what is refused."""

from tests.support.hazards import METHODS, run


@METHODS
def test_nan_is_neither_added_nor_updated(method):
    printed = run(
        """
        index = ScannIndex.build(gallery)
        index.add(gallery[:2] + 1, [4000, 4001])
        for value in (np.nan, np.inf, -np.inf, 1e39):
            bad = gallery[:3] + 2
            bad[1, 4] = value
            refused(lambda: index.add(bad, [5000, 5001, 5002]))
            refused(lambda: index.update([0, 4000, 2], bad))
        assert len(index) == 3002
        assert 5000 not in index
        finds(index, gallery[:50], range(50))
        index.compact()
        finds(index, gallery[:50], range(50))
        index.add(gallery[:3] + 2, [5000, 5001, 5002])
        finds(index, gallery[:3] + 2, [5000, 5001, 5002])
        """,
        method,
    )
    assert printed.count("`embeddings` must be finite in float32") == 8


@METHODS
def test_failed_addition_leaves_no_id_behind(method):
    # ScaNN keeps the id of a row that it refused: later answers are one off.
    printed = run(
        """
        index = ScannIndex.build(gallery, ids=[f"item-{i}" for i in range(3000)])
        names = [f"item-{i}" for i in range(50)]
        for rows, ids in (
            (np.ones((1, 7)), ["new"]),
            (np.ones((1, 9)), ["new"]),
            (np.ones(8), ["new"]),
            (np.zeros((1, 8)), ["new"]),
            (np.ones((2, 8)), ["new"]),
            (np.ones((1, 8)), ["new", "newer"]),
            (np.ones((1, 8)), [7]),
        ):
            refused(lambda: index.add(rows, ids))
            assert "new" not in index and len(index) == 3000
        finds(index, gallery[:50], names)
        index.add(gallery[:1] + 2, ["new"])
        finds(index, np.concatenate([gallery[:50], gallery[:1] + 2]), [*names, "new"])
        """,
        method,
    )
    assert printed.count("must have the dimension of the index, 8.") == 2


@METHODS
def test_removal_with_a_missing_id_removes_nothing(method):
    # ScaNN forgets half of the ids first, and then names the wrong items.
    printed = run(
        """
        index = ScannIndex.build(gallery)
        index.add(gallery[:1] + 2, [4000])
        for ids in ([3, 9999, 5], [9999], [4000, 9999], [9999, 3]):
            refused(lambda: index.remove(ids), KeyError)
            refused(lambda: index.update(ids, np.ones((len(ids), 8))), KeyError)
            assert len(index) == 3001
        finds(index, gallery[:50], range(50))
        index.remove([3, 4000, 5])
        refused(lambda: index.remove([3]), KeyError)
        assert not np.isin(index.search(gallery[:50], k=2998).ids, [3, 4000, 5]).any()
        kept = [row for row in range(50) if row not in (3, 5)]
        finds(index, gallery[kept], kept)
        """,
        method,
    )
    assert printed.count("9999") == 8


@METHODS
def test_no_id_is_there_twice(method):
    # ScaNN inserts both rows of an id that is twice in a batch; one cannot be deleted.
    printed = run(
        """
        index = ScannIndex.build(gallery)
        refused(lambda: index.add(gallery[:2] + 2, [5000, 5000]))
        refused(lambda: index.add(gallery[:2] + 2, [5000, 7]))
        refused(lambda: index.update([7, 7], gallery[:2]))
        refused(lambda: index.remove([7, 7]))
        assert len(index) == 3000 and 5000 not in index
        # Removed, added again, updated: only the last of them is found.
        for number in range(3):
            index.update([7], gallery[7:8] + number)
            index.remove([8])
            index.add(gallery[8:9] + number, [8])
        found = index.search(gallery[:20], k=3000).ids
        assert all(len(set(row)) == 3000 for row in found.tolist())
        finds(index, gallery[7:9] + 2, [7, 8])
        index.remove([7, 8])
        assert not np.isin(index.search(gallery[:20], k=3000).ids, [7, 8]).any()
        assert len(index) == 2998
        """,
        method,
    )
    assert printed.count("`ids` must not repeat") == 3
    assert printed.count("must not be in the index already") == 1


@METHODS
def test_lists_and_arrays_of_ids_are_neither_kept_nor_changed(method):
    # ScaNN keeps the list that it is given, and breaks on an array.
    run(
        """
        ids, rows = list(range(3000)), gallery.copy()
        index = ScannIndex.build(rows, ids=ids)
        more, added = np.array([5000, 5001], np.int32), gallery[:2] + 2
        names = ["x", "y"]
        index.add(added, more, {"class": names})
        index.update(np.array([10]), gallery[10:11] + 3)
        index.remove(np.array([11, 12], np.uint16))
        assert ids == list(range(3000)) and more.tolist() == [5000, 5001]
        ids[:], names[:] = [0] * 3000, ["z"] * 2
        rows[:], added[:], more[:] = 1, 1, 0
        index.ids[:] = 0
        index.get([5000]).embeddings[:] = 9
        finds(index, gallery[:10], range(10))
        finds(index, gallery[:2] + 2, [5000, 5001])
        assert index.get([5000]).attributes == [{"class": "x"}]
        assert len(index) == 3000
        """,
        method,
    )


@METHODS
def test_searches_go_on_while_items_change_and_the_index_is_built_again(method):
    # ScaNN ends the process where a thread searches and another inserts or retrains.
    run(
        """
        import random
        index = ScannIndex.build(gallery)
        stop, wrong = threading.Event(), []
        extra = draw(4000)[3000:] * 2 + 1
        unit = np.concatenate([gallery, np.full((2000, 8), np.nan), extra])
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)

        def search(seed):
            rng = np.random.default_rng(seed)
            try:
                while not stop.is_set():
                    rows = rng.integers(1000, 3000, 20)  # that nobody touches
                    k = int(rng.integers(1, 40))
                    ids, scores = index.search(gallery[rows], k)
                    assert ids.shape == (20, k) and np.isfinite(scores).all()
                    assert all(len(set(row)) == k for row in ids.tolist())
                    # The choice may be approximate; a score is its own item's.
                    own = (scores[:, 0] > 0.999).mean()
                    assert own >= (1 if METHOD == "exact" else 0.7), own
                    assert (np.diff(scores) <= 1e-6).all()
                    right = np.einsum("qkd,qd->qk", unit[ids], unit[rows])
                    assert np.abs(scores - right).max() < 1e-4
            except BaseException as error:
                wrong.append((error, error.__traceback__.tb_lineno))

        def build_again():
            try:
                while not stop.is_set():
                    index.compact()
            except BaseException as error:
                wrong.append((error, error.__traceback__.tb_lineno))

        threads = [threading.Thread(target=search, args=(seed,)) for seed in range(3)]
        threads.append(threading.Thread(target=build_again))
        for thread in threads:
            thread.start()
        draws = random.Random(0)
        there = []
        for number in range(300):
            index.add(extra[number : number + 1], [5000 + number])
            there.append(number)
            index.update([number], gallery[number : number + 1] * 2)
            if number % 3 == 0:
                gone = there.pop(draws.randrange(len(there)))
                index.remove([5000 + gone])
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        ids = [*range(3000), *(5000 + number for number in there)]
        assert sorted(index.search(gallery[:1], len(ids) + 1).ids[0].tolist()) == ids
        rows = index.get(ids).embeddings
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        assert np.abs(rows - unit[ids]).max() < 1e-6
        index.close()
        """,
        method,
    )


@METHODS
def test_index_that_was_emptied_is_filled_again(method):
    run(
        """
        index = ScannIndex.build(gallery[:100])
        index.remove(range(100))
        for _ in range(2):
            assert index.search(gallery[:5], k=3).ids.shape == (5, 0)
            index.compact()
        index.add(gallery[:40], range(40))
        finds(index, gallery[:40], range(40), k=2)
        index.compact()
        finds(index, gallery[:40], range(40), k=2)
        index.remove(range(1, 40))
        index.compact()
        finds(index, gallery[:1], [0])
        """,
        method,
    )


@METHODS
def test_galleries_of_few_rows_are_built(method):
    # ScaNN needs as many training points as leaves, and 16 of them for its codes.
    # The choice of settings never gives so few rows codes or a tree.
    sizes = [1, 2, 15, 16, 17, 40] if method == "exact" else [40, 100, 1000]
    run(
        f"""
        for rows in {sizes}:
            index = ScannIndex.build(gallery[:rows])
            finds(index, gallery[:rows], range(rows), k=min(rows, 2))
        """,
        method,
    )


def test_index_is_neither_pickled_nor_deep_copied():
    # A searcher of ScaNN would come out broken; a shared lock or log even more so.
    printed = run(
        """
        import copy, pickle
        for index in (ScannIndex.build(gallery), ExactIndex.build(gallery)):
            refused(lambda: pickle.dumps(index), TypeError)
            refused(lambda: copy.deepcopy(index), TypeError)
            finds(index, gallery[:5], range(5))
        """
    )
    assert printed.count("cannot pickle") == 4
