"""The classes of serializer snapshots that Flink brings, and this program's word for what each serializer writes."""

from __future__ import annotations

from typing import Final

FLINK: Final = "org.apache.flink."
BASE: Final = FLINK + "api.common.typeutils.base."
JAVA: Final = FLINK + "api.java.typeutils.runtime."
TABLE: Final = FLINK + "table.runtime.typeutils."
VIEW: Final = FLINK + "table.dataview."
PYTHON: Final = TABLE + "serializers.python."
SCALA: Final = FLINK + "api.scala.typeutils."
CEP: Final = FLINK + "cep.nfa."
LINKED: Final = FLINK + "table.runtime.sequencedmultisetstate.linked."

SIMPLE: Final[dict[str, str]] = {
    **{
        f"{BASE}{name}Serializer${name}SerializerSnapshot": kind
        for name, kind in {
            "String": "string",
            "Boolean": "boolean",
            "Byte": "byte",
            "Short": "short",
            "Int": "int",
            "Long": "long",
            "Float": "float",
            "Double": "double",
            "Char": "char",
            "BigInt": "bigint",
            "BigDec": "bigdec",
            "Date": "date",
            "SqlDate": "sqldate",
            "SqlTime": "sqltime",
            "SqlTimestamp": "sqltimestamp",
            "LocalDate": "localdate",
            "LocalTime": "localtime",
            "LocalDateTime": "localdatetime",
            "Instant": "instant",
            "Uuid": "uuid",
            "Void": "void",
            "NullValue": "nullvalue",
            "StringValue": "value:string",
            "BooleanValue": "value:boolean",
            "ByteValue": "value:byte",
            "ShortValue": "value:short",
            "IntValue": "value:int",
            "LongValue": "value:long",
            "FloatValue": "value:float",
            "DoubleValue": "value:double",
            "CharValue": "value:char",
            "Variant": "variant",
            "Bitmap": "bytes",
        }.items()
    },
    **{
        f"{BASE}array.{name}PrimitiveArraySerializer${name}PrimitiveArraySerializerSnapshot": kind
        for name, kind in {
            "Boolean": "booleans",
            "Byte": "bytes",
            "Short": "shorts",
            "Int": "ints",
            "Long": "longs",
            "Float": "floats",
            "Double": "doubles",
            "Char": "chars",
        }.items()
    },
    f"{BASE}array.StringArraySerializer$StringArraySerializerSnapshot": "strings",
    f"{JAVA}Tuple0SerializerSnapshot": "tuple0",
    f"{FLINK}runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot": "voidnamespace",
    f"{FLINK}queryablestate.client.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot": "voidnamespace",
    f"{FLINK}streaming.api.windowing.windows.TimeWindow$Serializer$TimeWindowSerializerSnapshot": "timewindow",
    f"{FLINK}streaming.api.windowing.windows.GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": "globalwindow",
    f"{FLINK}table.runtime.operators.window.TimeWindow$Serializer$TimeWindowSerializerSnapshot": "timewindow",
    f"{FLINK}table.runtime.operators.window.CountWindow$Serializer$CountWindowSerializerSnapshot": "countwindow",
    f"{FLINK}table.runtime.operators.window.GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": "globalwindow",
    f"{FLINK}table.runtime.operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot": "sortedlong",
    f"{TABLE}StringDataSerializer$StringDataSerializerSnapshot": "utf8",
    f"{TABLE}BinaryStringSerializer$BinaryStringSerializerSnapshot": "utf8",
    f"{VIEW}NullSerializer$NullSerializerSnapshot": "void",
    f"{PYTHON}StringSerializer$StringSerializerSnapshot": "utf8",
    f"{PYTHON}BigDecSerializer$BigDecSerializerSnapshot": "utf8",
    f"{PYTHON}DateSerializer$DateSerializerSnapshot": "days",
    f"{PYTHON}TimeSerializer$TimeSerializerSnapshot": "millisofday",
    f"{FLINK}streaming.api.utils.ByteArrayWrapperSerializer$ByteArrayWrapperSerializerSnapshot": "bytes",
    f"{FLINK}runtime.state.JavaSerializer$JavaSerializerSnapshot": "java",
    f"{CEP}sharedbuffer.EventId$EventIdSerializer$EventIdSerializerSnapshot": "eventid",
    f"{CEP}DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot": "ints",
    f"{SCALA}UnitSerializer$UnitSerializerSnapshot": "void",
}
"""Snapshots without a body, by class."""

COMPOSITE: Final[dict[str, str]] = {
    f"{BASE}ListSerializerSnapshot": "list",
    f"{FLINK}runtime.state.ArrayListSerializerSnapshot": "list",
    f"{BASE}MapSerializerSnapshot": "map",
    f"{BASE}SetSerializerSnapshot": "set",
    f"{BASE}GenericArraySerializerSnapshot": "array",
    f"{JAVA}JavaEitherSerializerSnapshot": "either",
    f"{JAVA}TupleSerializerSnapshot": "tuple",
    f"{JAVA}RowSerializer$RowSerializerSnapshot": "row",
    f"{JAVA}NullableSerializer$NullableSerializerSnapshot": "nullable",
    f"{FLINK}streaming.api.operators.TimerSerializerSnapshot": "timer",
    f"{FLINK}runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot": "ttl",
    f"{FLINK}runtime.state.v2.ttl.TtlStateFactory$TtlSerializerSnapshot": "ttl",
    f"{FLINK}api.common.typeutils.SingleThreadAccessCheckingTypeSerializer"
    "$SingleThreadAccessCheckingTypeSerializerSnapshot": "same",
    f"{FLINK}streaming.runtime.streamrecord.StreamElementSerializer$StreamElementSerializerSnapshot": "element",
    f"{FLINK}streaming.api.datastream.CoGroupedStreams$UnionSerializerSnapshot": "union",
    f"{FLINK}streaming.api.operators.co.IntervalJoinOperator$BufferEntrySerializerSnapshot": "bufferentry",
    f"{FLINK}streaming.api.functions.sink.TwoPhaseCommitSinkFunction$StateSerializerSnapshot": "twophase",
    f"{FLINK}streaming.api.functions.sink.legacy.TwoPhaseCommitSinkFunction$StateSerializerSnapshot": "twophase",
    f"{TABLE}LinkedListSerializer$LinkedListSerializerSnapshot": "linkedlist",
    f"{TABLE}ExternalSerializer$ExternalSerializerSnapshot": "same",
    f"{TABLE}WindowKeySerializer$WindowKeySerializerSnapshot": "windowkey",
    f"{TABLE}RawValueDataSerializer$RawValueDataSerializerSnapshot": "rawvalue",
    f"{VIEW}MapViewSerializerSnapshot": "same",
    f"{VIEW}ListViewSerializerSnapshot": "same",
    f"{VIEW}NullAwareMapSerializerSnapshot": "nullmap",
    f"{LINKED}NodeSerializer$NodeSerializerSnapshot": "sequence",
    f"{LINKED}MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot": "sequence",
    f"{LINKED}RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot": "sequence",
    f"{CEP}sharedbuffer.LockableTypeSerializerSnapshot": "lockable",
    f"{CEP}sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot": "nodeid",
    f"{CEP}sharedbuffer.SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot": "sequence",
    f"{CEP}sharedbuffer.SharedBufferNodeSerializerSnapshotV2": "buffernode",
    f"{CEP}NFAStateSerializerSnapshot": "nfastate",
    f"{SCALA}ScalaCaseClassSerializerSnapshot": "tuple",
    f"{SCALA}Tuple2CaseClassSerializerSnapshot": "tuple",
    f"{SCALA}ScalaOptionSerializerSnapshot": "option",
    f"{SCALA}ScalaEitherSerializerSnapshot": "either",
    f"{SCALA}ScalaTrySerializerSnapshot": "try",
    f"{SCALA}TraversableSerializerSnapshot": "traversable",
}
"""Snapshots that nest others, by class; `same`: the data are those of the one nested serializer."""

CLASS_ONLY: Final = frozenset(
    {
        f"{JAVA}ValueSerializer$ValueSerializerSnapshot",
        f"{JAVA}CopyableValueSerializer$CopyableValueSerializerSnapshot",
    }
)
"""Snapshots whose body is the name of a class with a format of its own (`GenericTypeSerializerSnapshot`)."""

VALUES: Final = {
    f"{FLINK}types.{name}Value": f"value:{name.lower()}"
    for name in ("String", "Boolean", "Byte", "Short", "Int", "Long", "Float", "Double", "Char")
}
