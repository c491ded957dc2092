"""The measurements of a fleet: a folder, local or in a cloud, cut into partitions that one process reads at a time.

    FOLDER/asset=A/*.parquet, FOLDER/A/*.csv, FOLDER/A.csv     the files of an asset; a partition has many assets
    FOLDER/*.parquet, FOLDER/part/*.parquet with a column      the files of a partition, each with many assets

Only names and sizes are read to plan: a folder need not fit into memory. The assets of the first layout are assigned to
partitions by a hash of their name, which new assets do not change.
"""

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinfold.parallel._executor import reason_of

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".parquet", ".csv")
READERS_NEEDED = 'A fleet is read with pandas, pyarrow and fsspec: pip install "twinfold[fleet]".'


@dataclass(frozen=True)
class AssetFile:
    """A file: its `asset`, "" if a column names the assets; `path`; and a `stamp` that changes when it does."""

    asset: str
    path: str
    bytes: int
    stamp: str


@dataclass(frozen=True)
class Partition:
    """Files that are read together."""

    name: str
    files: tuple[AssetFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    def signature(self, settings: str) -> str:
        """A hash of the files as they are now and of `settings`."""
        digest = hashlib.sha256(settings.encode())
        for file in sorted(self.files, key=lambda file: file.path):
            digest.update(f"{file.path}\0{file.bytes}\0{file.stamp}\0".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class FleetSource:
    """Where the measurements are: `folder`, a path or an address of fsspec (`s3://bucket/fleet`).

    `asset`: the column that names the assets, if a file has several; `time`: the column of times, by which the rows of
    an asset are sorted.
    """

    folder: str
    asset: str = ""
    time: str = "t"
    options: Mapping[str, Any] = field(default_factory=dict)  # of fsspec: credentials, end points

    def files(self) -> list[AssetFile]:
        """All files. **Raises:** `FileNotFoundError` if there is none."""
        system, root = self._open()
        found = []
        for path, info in sorted(system.find(root, detail=True).items()):
            if path.endswith(ENDINGS) and not path.rsplit("/", 1)[-1].startswith((".", "_")):
                stamp = next((str(info[key]) for key in ("ETag", "etag", "mtime", "LastModified") if key in info), "")
                found.append(AssetFile("" if self.asset else _asset_of(path, root), path, int(info["size"]), stamp))
        if not found:
            raise FileNotFoundError(f"{self.folder}: there is no {' or '.join(ENDINGS)} file in this folder.")
        return found

    def partitions(self, count: int) -> list[Partition]:
        """The partitions; `count` of them, some perhaps empty and left out, unless a column names the assets."""
        _, root = self._open()
        groups: dict[str, list[AssetFile]] = {}
        for file in self.files():
            name = _entry(file.path, root) if self.asset else f"{zlib.crc32(file.asset.encode()) % count:05d}"
            groups.setdefault(name, []).append(file)
        return [Partition(name, tuple(files)) for name, files in sorted(groups.items())]

    def tables(self, partition: Partition) -> Iterator[tuple[str, "pd.DataFrame | str"]]:
        """The rows of each asset, in the order of time; or, for a file that cannot be read, its path and the reason."""
        import pandas as pd

        system, _ = self._open()
        parts: dict[str, list[pd.DataFrame]] = {}
        for file in partition.files:
            try:
                table = _read(system, file.path)
                if self.asset and self.asset not in table.columns:
                    raise ValueError(f"there is no column '{self.asset}' that names the assets")
                by_asset = table.groupby(self.asset, sort=True) if self.asset else [(file.asset, table)]
                for name, rows in by_asset:
                    parts.setdefault(str(name), []).append(rows)
            except Exception as error:  # whatever is wrong with a file: it is named, and the others are read
                yield file.path, reason_of(error)
        for asset in sorted(parts):
            rows = parts.pop(asset)
            table = rows[0] if len(rows) == 1 else pd.concat(rows, ignore_index=True)
            if self.time in table.columns and not table[self.time].is_monotonic_increasing:
                table = table.sort_values(self.time, kind="stable")
            yield asset, table

    def _open(self) -> tuple[Any, str]:
        try:
            import fsspec
            import pandas  # noqa: F401
        except ImportError:
            raise ImportError(READERS_NEEDED) from None
        system, root = fsspec.core.url_to_fs(self.folder, **self.options)
        return system, root.rstrip("/")


def _read(system: Any, path: str) -> "pd.DataFrame":
    import pandas as pd

    with system.open(path, "rb") as file:
        return pd.read_parquet(file) if path.endswith(".parquet") else pd.read_csv(file)


def _entry(path: str, root: str) -> str:
    """The file or folder of the root that a path is in."""
    return path[len(root) :].strip("/").split("/")[0]


def _asset_of(path: str, root: str) -> str:
    """The asset that a file is of: the folder that it is in, or its own name."""
    name = _entry(path, root)
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name.partition("=")[2] or name
