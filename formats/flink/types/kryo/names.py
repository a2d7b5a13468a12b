"""Classes of the JDK by what Kryo does with them: boxes, collections, maps, enums, and classes that none extends."""

from __future__ import annotations

from typing import Final

BOXES: Final = {
    f"java.lang.{name}": form
    for name, form in {
        "Integer": "i",
        "Float": "f",
        "Boolean": "?",
        "Byte": "b",
        "Character": "H",
        "Short": "h",
        "Long": "q",
        "Double": "d",
        "Void": "",
    }.items()
}
"""Boxes of primitives, which Kryo never refers back to; with the letter of their primitive."""

PRIMITIVES: Final = {"I": "int", "F": "float", "Z": "boolean", "B": "byte", "C": "char", "S": "short", "J": "long"} | {
    "D": "double"
}


def _in(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names.split())


COLLECTIONS: Final = (
    *_in(
        "java.util.",
        "ArrayDeque ArrayList ArrayList$SubList AbstractList$SubList AbstractList$RandomAccessSubList SubList"
        " RandomAccessSubList HashSet LinkedHashSet LinkedList Stack Vector HashMap$EntrySet HashMap$KeySet"
        " HashMap$Values LinkedHashMap$LinkedEntrySet LinkedHashMap$LinkedKeySet LinkedHashMap$LinkedValues"
        " TreeMap$EntrySet TreeMap$KeySet TreeMap$Values Hashtable$EntrySet Hashtable$KeySet Hashtable$ValueCollection"
        " AbstractMap$1 AbstractMap$2 EnumMap$EntrySet EnumMap$KeySet EnumMap$Values IdentityHashMap$EntrySet"
        " IdentityHashMap$KeySet IdentityHashMap$Values WeakHashMap$EntrySet WeakHashMap$KeySet WeakHashMap$Values",
    ),
    *_in(
        "java.util.Collections$",
        "AsLIFOQueue CheckedCollection CheckedList CheckedNavigableSet CheckedQueue CheckedRandomAccessList"
        " CheckedSet CheckedSortedSet CopiesList SetFromMap SynchronizedCollection SynchronizedList"
        " SynchronizedNavigableSet SynchronizedRandomAccessList SynchronizedSet SynchronizedSortedSet"
        " UnmodifiableCollection UnmodifiableList UnmodifiableMap$UnmodifiableEntrySet UnmodifiableNavigableSet"
        " UnmodifiableRandomAccessList UnmodifiableSequencedCollection UnmodifiableSequencedSet UnmodifiableSet"
        " UnmodifiableSortedSet",
    ),
    *_in("java.util.ImmutableCollections$", "List0 List1 List12 List2 ListN Set0 Set1 Set12 Set2 SetN SubList MapN$1"),
    *_in(
        "java.util.concurrent.",
        "ArrayBlockingQueue ConcurrentHashMap$EntrySetView ConcurrentHashMap$KeySetView ConcurrentHashMap$ValuesView"
        " ConcurrentLinkedDeque ConcurrentLinkedQueue ConcurrentSkipListMap$EntrySet ConcurrentSkipListMap$KeySet"
        " ConcurrentSkipListMap$Values ConcurrentSkipListSet CopyOnWriteArrayList CopyOnWriteArrayList$COWSubList"
        " CopyOnWriteArraySet DelayQueue LinkedBlockingDeque LinkedBlockingQueue LinkedTransferQueue"
        " PriorityBlockingQueue",
    ),
)
"""Collections that are written as such, of Java 8 to 21."""

MAPS: Final = (
    *_in(
        "java.util.",
        "EnumMap HashMap Hashtable IdentityHashMap LinkedHashMap Properties WeakHashMap jar.Attributes"
        " TreeMap$AscendingSubMap TreeMap$DescendingSubMap concurrent.ConcurrentHashMap"
        " concurrent.ConcurrentSkipListMap$SubMap",
    ),
    *_in(
        "java.util.Collections$",
        "CheckedMap CheckedNavigableMap CheckedSortedMap SynchronizedMap SynchronizedNavigableMap"
        " SynchronizedSortedMap UnmodifiableMap UnmodifiableNavigableMap UnmodifiableSequencedMap"
        " UnmodifiableSortedMap",
    ),
    *_in("java.util.ImmutableCollections$", "Map0 Map1 MapN"),
)
"""Maps that are written as such."""

ENUMS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(constants.split())
    for name, constants in {
        "java.lang.Thread$State": "NEW RUNNABLE BLOCKED WAITING TIMED_WAITING TERMINATED",
        "java.math.RoundingMode": "UP DOWN CEILING FLOOR HALF_UP HALF_DOWN HALF_EVEN UNNECESSARY",
        "java.net.Proxy$Type": "DIRECT HTTP SOCKS",
        "java.net.StandardProtocolFamily": "INET INET6 UNIX",
        "java.nio.file.StandardOpenOption": "READ WRITE APPEND TRUNCATE_EXISTING CREATE CREATE_NEW DELETE_ON_CLOSE"
        " SPARSE SYNC DSYNC",
        "java.nio.file.attribute.PosixFilePermission": "OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_WRITE"
        " GROUP_EXECUTE OTHERS_READ OTHERS_WRITE OTHERS_EXECUTE",
        "java.sql.JDBCType": "BIT TINYINT SMALLINT INTEGER BIGINT FLOAT REAL DOUBLE NUMERIC DECIMAL CHAR VARCHAR"
        " LONGVARCHAR DATE TIME TIMESTAMP BINARY VARBINARY LONGVARBINARY NULL OTHER JAVA_OBJECT DISTINCT STRUCT ARRAY"
        " BLOB CLOB REF DATALINK BOOLEAN ROWID NCHAR NVARCHAR LONGNVARCHAR NCLOB SQLXML REF_CURSOR TIME_WITH_TIMEZONE"
        " TIMESTAMP_WITH_TIMEZONE",
        "java.text.Normalizer$Form": "NFD NFC NFKD NFKC",
        "java.time.DayOfWeek": "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
        "java.time.Month": "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER",
        "java.time.chrono.IsoEra": "BCE CE",
        "java.time.format.FormatStyle": "FULL LONG MEDIUM SHORT",
        "java.time.format.ResolverStyle": "STRICT SMART LENIENT",
        "java.time.format.SignStyle": "NORMAL ALWAYS NEVER NOT_NEGATIVE EXCEEDS_PAD",
        "java.time.format.TextStyle": "FULL FULL_STANDALONE SHORT SHORT_STANDALONE NARROW NARROW_STANDALONE",
        "java.time.temporal.ChronoField": "NANO_OF_SECOND NANO_OF_DAY MICRO_OF_SECOND MICRO_OF_DAY MILLI_OF_SECOND"
        " MILLI_OF_DAY SECOND_OF_MINUTE SECOND_OF_DAY MINUTE_OF_HOUR MINUTE_OF_DAY HOUR_OF_AMPM CLOCK_HOUR_OF_AMPM"
        " HOUR_OF_DAY CLOCK_HOUR_OF_DAY AMPM_OF_DAY DAY_OF_WEEK ALIGNED_DAY_OF_WEEK_IN_MONTH"
        " ALIGNED_DAY_OF_WEEK_IN_YEAR DAY_OF_MONTH DAY_OF_YEAR EPOCH_DAY ALIGNED_WEEK_OF_MONTH ALIGNED_WEEK_OF_YEAR"
        " MONTH_OF_YEAR PROLEPTIC_MONTH YEAR_OF_ERA YEAR ERA INSTANT_SECONDS OFFSET_SECONDS",
        "java.time.temporal.ChronoUnit": "NANOS MICROS MILLIS SECONDS MINUTES HOURS HALF_DAYS DAYS WEEKS MONTHS YEARS"
        " DECADES CENTURIES MILLENNIA ERAS FOREVER",
        "java.util.Locale$Category": "DISPLAY FORMAT",
        "java.util.concurrent.TimeUnit": "NANOSECONDS MICROSECONDS MILLISECONDS SECONDS MINUTES HOURS DAYS",
    }.items()
}
"""Enums and their constants in order, which is all that is written of one."""

FINAL: Final = frozenset(
    {
        *BOXES,
        *ENUMS,
        *_in("java.lang.", "String Class StringBuilder StringBuffer"),
        *_in(
            "java.time.",
            "Duration Instant LocalDate LocalDateTime LocalTime MonthDay OffsetDateTime OffsetTime Period Year"
            " YearMonth ZoneOffset ZonedDateTime ZoneRegion",
        ),
        *_in("java.util.", "Currency Locale Optional OptionalDouble OptionalInt OptionalLong UUID regex.Pattern"),
        *_in("java.net.", "URI URL"),
    }
) - {"java.util.concurrent.TimeUnit"}
"""Classes that none extends, so that an array of them says no classes. (TimeUnit had subclasses before Java 9.)"""
