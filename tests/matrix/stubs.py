"""Stand-ins for shared libraries that a library is linked with and that are not here.

torch's plain wheels are CUDA builds: they load only where some fifteen libraries of CUDA do, 3 GB that nothing uses
without a GPU. Each gets a stand-in that defines, with its version, every symbol that torch needs from it. A function of
CUDA's runtime answers "no device" (100), every other one 0; so torch finds no GPU, as on a machine that has none.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SYSTEM = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0"),
    *("ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1"),
)
"""What a manylinux wheel may expect of every machine."""
NO_DEVICE = 100


@dataclass(frozen=True, slots=True)
class Symbol:
    """A line of a library's table of symbols."""

    name: str
    version: str
    is_data: bool
    is_needed: bool
    """Not defined here, and the library does not load without it."""


def stand_in(folder: Path) -> list[str]:
    """Make, in ``folder``, the libraries that those in it are linked with and that are nowhere; return their names."""
    present = [path for path in folder.iterdir() if re.search(r"\.so(\.\d+)*$", path.name)]
    known = {*SYSTEM, *(path.name for path in present)}
    missing = {path: [name for name in linked(path) if name not in known] for path in present}
    wanted = undefined(missing) if any(missing.values()) else {}
    for name, needed in wanted.items():
        compile_(folder / name, needed)
    return sorted(wanted)


def linked(library: Path) -> list[str]:
    """The libraries that one is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", library))


def undefined(missing: dict[Path, list[str]]) -> dict[str, list[Symbol]]:
    """For each library that is missing for others, the symbols that they need and that neither they nor
    the system nor Python define.
    """
    present = list(missing)
    tables = [symbols(path) for path in present]
    defined = {symbol.name for table in tables for symbol in table if not symbol.is_needed}
    loaded = [ctypes.CDLL(None), *(ctypes.CDLL(name) for name in SYSTEM)]
    wanted: dict[str, dict[str, Symbol]] = {name: {} for names in missing.values() for name in names}
    for path, table in zip(present, tables, strict=True):
        owners = files_of_versions(path)
        for symbol in table if missing[path] else ():
            if (
                symbol.is_needed
                and symbol.name not in defined
                and not any(hasattr(library, symbol.name) for library in loaded)
            ):
                # Without a version it may come from any library that this one is linked with.
                wanted[owners.get(symbol.version, missing[path][0])][symbol.name] = symbol
    return {file: list(named.values()) for file, named in wanted.items()}


def symbols(path: Path) -> list[Symbol]:
    """Those that a library defines or must have; weak ones may be missing."""
    rows = (line.split() for line in readelf("--dyn-syms", path).splitlines())
    # Num: Value Size Type Bind Vis Ndx Name@Version
    rows_of_symbols = (row for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit())
    return [
        Symbol(row[7].partition("@")[0], row[7].partition("@")[2].lstrip("@"), row[3] == "OBJECT", row[6] == "UND")
        for row in rows_of_symbols
        if row[6] != "UND" or row[4] != "WEAK"
    ]


def files_of_versions(path: Path) -> dict[str, str]:
    """The library that each version of a symbol belongs to (libnvshmem_host.so.3 calls its own NVSHMEM)."""
    owners, file = {}, ""
    for line in readelf("--version-info", path).splitlines():
        if named := re.search(r"File: (\S+)", line):
            file = named[1]
        elif named := re.search(r"Name: (\S+)  Flags", line):
            owners[named[1]] = file
    return owners


def compile_(library: Path, wanted: list[Symbol]) -> None:
    """A shared library of that name with those symbols."""
    source = [definition(symbol) for symbol in wanted]
    versions = {
        version: [s.name for s in wanted if s.version == version]
        for version in sorted({s.version for s in wanted if s.version})
    }
    nodes = [f"{version} {{ global: {'; '.join(names)}; }};" for version, names in versions.items()]
    with tempfile.TemporaryDirectory() as name:
        code, script = Path(name) / "stub.c", Path(name) / "versions"
        code.write_text("\n".join(source), encoding="utf-8")
        script.write_text("\n".join(nodes) or "{ global: *; };", encoding="utf-8")
        linker = f"-Wl,-soname,{library.name},--version-script,{script}"
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", library, code, linker], check=True)


def definition(symbol: Symbol) -> str:
    """A symbol in C."""
    if symbol.is_data:
        return f"void *{symbol.name}[64];"
    if symbol.name.startswith("cudaGetError"):
        return f'const char *{symbol.name}(void) {{ return "no CUDA"; }}'
    return f"long {symbol.name}(void) {{ return {NO_DEVICE if symbol.name.startswith('cuda') else 0}; }}"


def readelf(table: str, library: Path) -> str:
    """What binutils says of a library."""
    return subprocess.run(["readelf", "--wide", table, library], capture_output=True, text=True, check=True).stdout
