"""Files that ScaNN would read beyond their end, run as code, or read elsewhere."""

from tests.support.hazards import METHODS, run

DAMAGE = {
    "flipped": "content[len(content) // 2] ^= 1; path.write_bytes(content)",
    "flipped-at-the-end": "content[-1] ^= 128; path.write_bytes(content)",
    "truncated": "path.write_bytes(content[:-1])",
    "longer": "path.write_bytes(content + bytes(1))",
    "empty": "path.write_bytes(bytes())",
    "missing": "path.unlink()",
}


@METHODS
def test_any_damage_to_any_file_is_refused(method, tmp_path):
    damages = "\n".join(
        f"    ({name!r}, lambda path, content: exec({code!r}, globals(), "
        "{'path': path, 'content': content})),"
        for name, code in DAMAGE.items()
    )
    printed = run(
        f"""
AT_THE_END = ("truncated", "longer")
folder = Path(sys.argv[1]) / "index"
classes = {{"class": ["x", "y", None] * 1000}}
with ScannIndex.build(gallery, attributes=classes) as index:
    index.save(folder)
    index.add(gallery[:2], [5000, 5001])
    index.remove([0, 5000])
files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
for path in files:
    whole = path.read_bytes()
    for name, damage in [
{damages}
    ]:
        damage(path, bytearray(whole))
        if path.suffix == ".log" and name in AT_THE_END:
            assert len(load_index(folder)) in (3000, 3002)
        else:
            refused(lambda: load_index(folder))
        path.write_bytes(whole)
load_index(folder).search(gallery[:5])
print(len(files), "files")
""",
        method,
        str(tmp_path),
    )
    count = int(printed.splitlines()[-2].split()[0])
    assert count >= {"exact": 13, "hashing": 15, "tree": 17}[method]
    refusals = printed.splitlines()[:-2]
    # At its end, the log may break off or have leavings; that is no damage.
    assert len(refusals) == count * len(DAMAGE) - 2
    assert all("damaged" in line or "holds no index" in line for line in refusals)


def test_files_of_another_index_are_refused(tmp_path):
    # ScaNN loads a smaller dataset.npy and then reads beyond its end.
    printed = run(
        """
        use("hashing")
        one, other = Path(sys.argv[1]) / "one", Path(sys.argv[1]) / "other"
        ScannIndex.build(gallery).save(one)
        ScannIndex.build(gallery[:500]).save(other)
        (small,), (large,) = other.glob("data-*/dataset.npy"), one.glob(
            "data-*/dataset.npy")
        large.write_bytes(small.read_bytes())
        refused(lambda: load_index(one))
        """,
        folder=str(tmp_path),
    )
    assert "damaged" in printed
    assert "dataset.npy must have bytes" in printed


@METHODS
def test_pickle_in_an_index_folder_is_never_run(method, tmp_path):
    run(
        """
        import pickle
        folder = Path(sys.argv[1]) / "index"
        ScannIndex.build(gallery).save(folder)
        class Bomb:
            def __reduce__(self):
                return os._exit, (66,)
        for place in (folder, next(folder.glob("data-*[0-9a-f]"))):
            (place / "scann_docids.pkl").write_bytes(pickle.dumps(Bomb()))
        assert load_index(folder).search(gallery[:5]).ids[:, 0].tolist() == list(
            range(5))
        ids = np.array([Bomb()], dtype=object)
        refused(lambda: ExactIndex.build(gallery[:1], ids=ids))
        """,
        method,
        str(tmp_path),
    )


@METHODS
def test_folder_works_where_it_was_moved_to(method, tmp_path):
    run(
        """
        import shutil
        first, copy = Path(sys.argv[1]) / "first", Path(sys.argv[1]) / "copy"
        index = ScannIndex.build(gallery)
        index.save(first)
        shutil.copytree(first, copy)
        # The same folder name now holds another gallery.
        ScannIndex.build(gallery[::-1].copy()).save(first)
        expected = index.search(gallery[:50])
        assert (load_index(copy).search(gallery[:50]).ids == expected.ids).all()
        shutil.rmtree(first)
        os.chdir("/")
        assert (load_index(copy).search(gallery[:50]).ids == expected.ids).all()
        """,
        method,
        str(tmp_path),
    )


def test_failing_disk_is_an_error_and_spares_the_old_index(tmp_path):
    run(
        """
        import resource
        folder = Path(sys.argv[1]) / "index"
        ScannIndex.build(gallery[:100]).save(folder)
        large = ScannIndex.build(gallery)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        try:
            large.save(folder)
        except OSError as error:
            print(error)
        else:
            raise SystemExit("was not refused")
        assert len(load_index(folder)) == 100
        assert len(list(folder.iterdir())) == 3
        """,
        folder=str(tmp_path),
    )
