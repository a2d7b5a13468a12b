"""Values of Flink's `PojoSerializer`: fields by name, and subclasses that were registered or met later.

u8 flags (1 null, 2 the class itself, 4 a subclass by its name, 8 a registered one by its number), then a field each: u8
whether it is null, and its value. What only subclasses have stands in columns of their own, `Subclass.field`, behind
`@class`, which names the subclass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from formats.flink.types.serializers import Snapshot
from formats.flink.types.values import SUBCLASSES, Codec, HiddenValue, Shape

_NULL: Final = 1
_SAME: Final = 2
_OTHER: Final = 4
_REGISTERED: Final = 8


def pojo(snapshot: Snapshot, codec: Callable[[Snapshot], Codec]) -> Codec:
    """The reader of a Pojo's values. codec: makes those of its fields.

    Any may be of a subclass that cannot be read: Flink describes one only once it has met it, in each task for itself.
    """
    parts = [codec(part) for part in snapshot.nested]
    names = snapshot.names
    subclasses = [(name, codec(part) if part is not None else None) for name, part in snapshot.registered]
    others = {name: codec(part) for name, part in snapshot.others if part is not None}
    every = [(name, sub) for name, sub in (*subclasses, *others.items()) if sub is not None]
    about = snapshot.about or "?"

    # fields that only subclasses have come after the Pojo's own, by `Subclass.field`, and the class before them
    places: dict[str, list[int]] = {}
    own = list(zip(names, (part.shape for part in parts), strict=True))
    extra: list[tuple[str, Shape]] = []
    for name, sub in every:
        if sub.kind != "pojo" or isinstance(sub.shape, str):
            continue
        at = []
        for field, kind in sub.shape[1]:
            if (field, kind) in own:
                at.append(names.index(field))
                continue
            called = f"{name.rpartition('.')[2].rpartition('$')[2]}.{field}"
            if (called, kind) not in extra:
                extra.append((called, kind))
            at.append(len(own) + 1 + extra.index((called, kind)))
        places[name] = at
    width = len(own) + 1 + len(extra)

    def spread(name: str, value: Any) -> Any:
        if value is None:
            return None
        if name not in places:
            raise HiddenValue(name)
        out: list[Any] = [None] * width
        out[len(own)] = name
        for i, part in zip(places[name], value, strict=True):
            out[i] = part
        return tuple(out)

    reads = [part.read for part in parts]

    def read(buf: bytes, pos: int) -> tuple[Any, int]:
        flags = buf[pos]
        pos += 1
        if flags == _SAME:
            out = []
            for one in reads:
                null = buf[pos]
                if null == 0:
                    value, pos = one(buf, pos + 1)
                    out.append(value)
                elif null == 1:
                    out.append(None)
                    pos += 1
                else:
                    raise ValueError(f"{null} where 0 or 1 is due")
            if subtypes:
                out += [about, *[None] * len(extra)]
            return tuple(out), pos
        if flags == _NULL:
            return None, pos
        if flags == _REGISTERED:
            tag = buf[pos]
            if tag >= len(subclasses):
                raise ValueError(f"subclass {tag} of {len(subclasses)}")
            name, sub = subclasses[tag]
            pos += 1
        elif flags == _OTHER:
            n = buf[pos] << 8 | buf[pos + 1]
            if n > len(buf) - pos - 2:
                raise IndexError("a class name ends too early")
            name = buf[pos + 2 : pos + 2 + n].decode("utf-8", "backslashreplace")
            sub = others.get(name)
            pos += 2 + n
        else:
            raise ValueError(f"Pojo flags {flags}")
        if sub is None:
            raise HiddenValue(f"{name} (subclass of {about})")
        value, pos = sub.read(buf, pos)
        return spread(name, value), pos

    subtypes = bool(snapshot.registered or snapshot.others)
    shapes = (*own, ("@class", "string"), *extra) if subtypes else tuple(own)
    hides = next((sub.hides for _, sub in every if sub.hides), None)
    hides = hides or next((name for name, sub in subclasses if sub is None), None)
    hides = hides or next((part.hides for part in parts if part.hides), None) or SUBCLASSES
    return Codec("pojo", read, ("struct", shapes), parts=tuple(parts), hides=hides)
