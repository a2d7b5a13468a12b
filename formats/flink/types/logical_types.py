"""Flink's SQL types, as they stand Java-serialised in the snapshots of table serializers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from formats.flink.java_object import JavaClass, JavaObject

_ROOTS: Final = {
    "CharType": "CHAR",
    "VarCharType": "VARCHAR",
    "BooleanType": "BOOLEAN",
    "BinaryType": "BINARY",
    "VarBinaryType": "VARBINARY",
    "DecimalType": "DECIMAL",
    "TinyIntType": "TINYINT",
    "SmallIntType": "SMALLINT",
    "IntType": "INTEGER",
    "BigIntType": "BIGINT",
    "FloatType": "FLOAT",
    "DoubleType": "DOUBLE",
    "DateType": "DATE",
    "TimeType": "TIME",
    "TimestampType": "TIMESTAMP",
    "LocalZonedTimestampType": "TIMESTAMP_LTZ",
    "ZonedTimestampType": "TIMESTAMP_TZ",
    "YearMonthIntervalType": "INTERVAL_MONTH",
    "DayTimeIntervalType": "INTERVAL_SECOND",
    "ArrayType": "ARRAY",
    "MapType": "MAP",
    "MultisetType": "MULTISET",
    "RowType": "ROW",
    "DistinctType": "DISTINCT",
    "StructuredType": "STRUCTURED",
    "NullType": "NULL",
    "RawType": "RAW",
    "TypeInformationRawType": "RAW",
    "LegacyTypeInformationType": "RAW",
    "SymbolType": "SYMBOL",
    "VariantType": "VARIANT",
    "BitmapType": "BITMAP",
}

_WITH_PRECISION: Final = frozenset({"DECIMAL", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ"})


class LogicalType(msgspec.Struct, frozen=True):
    """One SQL type.

    root: `BIGINT`, `ROW`, ...
    precision, scale: of decimals and times.
    names: fields of a ROW or a structured type.
    children: their types, or those of an ARRAY (1), MAP (2), MULTISET (1).
    class_name: of RAW.
    """

    root: str
    nullable: bool = True
    precision: int = 0
    scale: int = 0
    names: tuple[str, ...] = ()
    children: tuple[LogicalType, ...] = ()
    class_name: str | None = None

    def __str__(self) -> str:
        match self.root:
            case "ROW" | "STRUCTURED":
                fields = (f"{name} {child}" for name, child in zip(self.names, self.children, strict=True))
                text = f"{self.class_name or 'ROW'}<{', '.join(fields)}>"
            case "ARRAY" | "MAP" | "MULTISET":
                text = f"{self.root}<{', '.join(map(str, self.children))}>"
            case "DECIMAL":
                text = f"DECIMAL({self.precision}, {self.scale})"
            case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
                text = f"{self.root}({self.precision})"
            case "RAW":
                text = f"RAW({self.class_name or '?'})"
            case _:
                text = self.root
        return text if self.nullable else f"{text} NOT NULL"


def logical_type(value: Any) -> LogicalType:
    """The type that a Java object stands for; ValueError if it is none that Flink 1.9 to 2.3 has."""
    if not isinstance(value, JavaObject):
        raise ValueError("a logical type is due, and no object is there")
    name = value.class_name.rpartition(".")[2]
    root = _ROOTS.get(name)
    if root is None:
        raise ValueError(f"{value.class_name} is not a logical type that abs knows")
    fields = value.fields
    nullable = fields.get("isNullable") is not False
    precision, scale = _number(fields, "precision"), _number(fields, "scale")
    match root:
        case "ROW" | "STRUCTURED":
            parts = java_list(fields.get("fields" if root == "ROW" else "attributes"))
            if root == "STRUCTURED" and isinstance(fields.get("superType"), JavaObject):
                parts = _inherited(fields["superType"]) + parts
            objects = [part for part in parts if isinstance(part, JavaObject)]
            return LogicalType(
                root,
                nullable,
                names=tuple(str(part.fields.get("name")) for part in objects),
                children=tuple(logical_type(part.fields.get("type")) for part in objects),
                class_name=_class_name(fields.get("implementationClass")) if root == "STRUCTURED" else None,
            )
        case "ARRAY" | "MULTISET":
            return LogicalType(root, nullable, children=(logical_type(fields.get("elementType")),))
        case "MAP":
            children = (logical_type(fields.get("keyType")), logical_type(fields.get("valueType")))
            return LogicalType(root, nullable, children=children)
        case "DISTINCT":
            return logical_type(fields.get("sourceType"))
        case "RAW":
            return LogicalType(root, nullable, class_name=_class_name(fields.get("clazz")))
        case _ if root in _WITH_PRECISION:
            return LogicalType(root, nullable, precision, scale)
        case _:
            return LogicalType(root, nullable)


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def _class_name(value: Any) -> str | None:
    if isinstance(value, JavaClass):
        return value.name
    return value if isinstance(value, str) else None


def _inherited(parent: JavaObject) -> list[Any]:
    parts = java_list(parent.fields.get("attributes"))
    above = parent.fields.get("superType")
    return (_inherited(above) if isinstance(above, JavaObject) and above is not parent else []) + parts


def java_list(value: Any) -> list[Any]:
    """The elements of a Java list (ArrayList, Arrays.asList, Collections.unmodifiableList, ...); ValueError if none."""
    for _ in range(8):  # wrappers in wrappers
        if isinstance(value, list):
            return value
        if not isinstance(value, JavaObject):
            break
        if "a" in value.fields:  # Arrays.asList
            value = value.fields["a"]
        elif isinstance(value.fields.get("list"), JavaObject):  # Collections.unmodifiableList
            value = value.fields["list"]
        elif "element" in value.fields:  # Collections.singletonList
            return [value.fields["element"]]
        elif value.class_name == "java.util.Collections$EmptyList":
            return []
        else:  # ArrayList and ImmutableCollections write themselves: a block with the size, then the elements
            return [item for item in value.extra if not isinstance(item, bytes)]
    raise ValueError("a Java list is due")
