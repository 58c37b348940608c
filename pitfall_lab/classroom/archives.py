"""Archives that are handed in: :func:`unpacked` returns the notebooks of a zip.

A zip is read in memory and within limits: nothing is unpacked onto the disk, no name in it is a path.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from datetime import datetime

from pitfall_lab.classroom.roster import quoted
from pitfall_lab.trace import T

MOST_MEMBERS = 2000
_SKIPPED = ("__MACOSX", ".")
_FOLDER_ITSELF = (".", "..")
"""Parts of a path that some programs write into zips. No name in a zip is used as a path, so they do no harm."""
_OTHERS = {b"Rar!": "RAR", b"7z\xbc\xaf'": "7z", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zX": "xz"}


class UnreadableArchive(Exception):
    """The file cannot be read as notebooks; ``sentence`` says why, as the end of a sentence in English and Chinese.

    ``is_other``: the file is known to be something else than a notebook or an archive of notebooks, and has no answers.
    """

    def __init__(self, en: str, zh: str, *, is_other: bool = False) -> None:
        super().__init__(en)
        self.sentence = T(en=en, zh=zh)
        self.is_other = is_other


_DOCUMENTS = {
    b"%PDF": ("a PDF", "PDF 文件"),
    b"\x89PNG": ("a picture", "图片"),
    b"\xff\xd8\xff": ("a picture", "图片"),
    b"<": ("a web page", "网页"),
    b"{\\rtf": ("a text document", "文字处理文档"),
}


def is_zip(raw: bytes) -> bool:
    """Whether a file's bytes begin as a zip's."""
    return raw.startswith((b"PK\x03\x04", b"PK\x05\x06"))  # the second one of an empty zip


def refuse_others(raw: bytes) -> None:
    """Raise :class:`UnreadableArchive` if the bytes ``raw`` are those of an archive that is no zip."""
    kinds = [kind for begin, kind in _OTHERS.items() if raw.startswith(begin)]
    kinds += ["tar"] if raw[257:262] == b"ustar" else []
    for kind in kinds:
        raise UnreadableArchive(
            f"it is an archive ({kind}), not a notebook: unpack it", f"这是压缩包（{kind}），不是笔记本：请先解压"
        )


def refuse_documents(name: str, raw: bytes) -> None:
    """Raise :class:`UnreadableArchive` for what is handed in instead of a notebook: a page, a picture, a program; else
    do nothing.

    ``name`` is the file's name (only its ending ``.py`` counts), ``raw`` its bytes, of which the beginning tells the
    kind.
    """
    known = [words for begin, words in _DOCUMENTS.items() if raw.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(begin)]
    if name.lower().endswith(".py"):
        known.append(("a Python program", "Python 程序"))
    if known:
        en, zh = known[0]
        raise UnreadableArchive(
            f"it is {en}, not a notebook (a file .ipynb)", f"它是{zh}，不是笔记本（.ipynb 文件）", is_other=True
        )


def unpacked(raw: bytes, *, most: int, largest: int) -> list[tuple[str, bytes, float]]:
    """The notebooks of a zip, each as its name, its bytes and when it was written (seconds since 1970; 0 where the zip
    has no possible date).

    Raises :class:`UnreadableArchive` if the zip is damaged, has a password or an unusual compression, has no notebook,
    too many files, more than ``most`` notebooks, or notebooks of more than ``largest`` bytes together.
    """
    if _has_too_many(raw):
        raise UnreadableArchive(f"the zip has more than {MOST_MEMBERS} files", f"压缩包中的文件超过 {MOST_MEMBERS} 个")
    found = []
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as box:
            books = [each for each in box.infolist() if _is_notebook(each.filename)]
            if not books:
                said = _others([each.filename for each in box.infolist() if not each.is_dir()])
                en, zh = said and f", but {said}", said and f"，只有 {said}"
                raise UnreadableArchive(
                    f"there is no notebook in the zip{en}", f"压缩包中没有笔记本{zh}", is_other=True
                )
            if len(books) > most:
                raise UnreadableArchive(
                    f"there are more than {most} notebooks in the zip", f"压缩包中的笔记本超过 {most} 个"
                )
            for each in books:
                found.append((each.filename, text := _member(box, each, largest), _written(each)))
                largest -= len(text)
    # All of these come from zipfile for bytes that a student may have made up: BadZipFile and zlib.error for
    # damaged parts, EOFError where data end early, RuntimeError (with NotImplementedError) for versions and
    # passwords, ValueError for names that do not decode and offsets below 0, OverflowError and OSError for offsets
    # that no file has. A slip of ours
    # (TypeError, KeyError …) is not hidden.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, OverflowError):
        raise UnreadableArchive(
            "it is a zip that cannot be read: unpack it", "这是无法读取的压缩包：请先解压"
        ) from None
    return found


def others(raw: bytes, endings: tuple[str, ...]) -> list[str]:
    """The names, without folders, of the files in the zip ``raw`` that end with one of ``endings`` (in lower case);
    empty if it is no zip, or cannot be read.
    """
    if not is_zip(raw) or _has_too_many(raw):
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as box:
            names = [name for name in box.namelist() if not _is_left_behind(name)]
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, OverflowError):
        return []
    return [name.rsplit("/", 1)[-1] for name in names if name.lower().endswith(endings)]


def _has_too_many(raw: bytes) -> bool:
    """Whether a zip has too many files; asked before their table is read, as each entry takes memory."""
    return raw.count(b"PK\x01\x02") > MOST_MEMBERS


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb") and not _is_left_behind(name)


def _is_left_behind(name: str) -> bool:
    return any(part.startswith(_SKIPPED) and part not in _FOLDER_ITSELF for part in name.split("/"))


def _others(names: list[str]) -> str:
    """The names of the first files of a zip, for a message that it has these and no notebook."""
    shown = [name for name in names if not _is_left_behind(name)] or names
    printable = [
        "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name[-40:])
        for name in shown[:3]
    ]
    return ", ".join(map(quoted, printable)) + " …" * (len(shown) > 3)


def _member(box: zipfile.ZipFile, each: zipfile.ZipInfo, largest: int) -> bytes:
    if each.flag_bits & 1:
        raise UnreadableArchive("it is a zip with a password: unpack it", "这是带密码的压缩包：请先解压")
    if each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # the others' memory is what the file says
        raise UnreadableArchive("it is a zip of an unusual kind: unpack it", "这是不常见的压缩包：请先解压")
    with box.open(each) as file:
        text = file.read(largest + 1)
    if len(text) > largest:
        raise UnreadableArchive("the notebooks in the zip are too large", "压缩包中的笔记本过大")
    return text


def _written(each: zipfile.ZipInfo) -> float:
    try:
        return datetime(*each.date_time).timestamp()  # noqa: DTZ001 - a zip has local times
    except (ValueError, OverflowError, OSError):
        return 0.0
