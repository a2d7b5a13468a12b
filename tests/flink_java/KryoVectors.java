import java.io.*;
import java.math.*;
import java.net.*;
import java.nio.charset.*;
import java.time.*;
import java.time.temporal.ChronoUnit;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.regex.Pattern;
import org.apache.flink.api.common.serialization.*;
import org.apache.flink.api.common.typeutils.*;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.core.memory.*;

/**
 * Makes tests/data/flink/kryo.jsonl.xz: values of classes of the JDK as Flink's KryoSerializer writes them, each as a
 * state of its own class and as one of Object. Compiles and runs with Flink 1.20 (Kryo 2.24) and 2.x (Kryo 5).
 *
 * <p>Arguments: the file to write, the major version of Kryo. Java needs --add-opens for what Kryo reflects on.
 */
public class KryoVectors {
  static StringBuilder out = new StringBuilder();
  static String kryo;

  public static class Mine implements Serializable {
    public int x = 5;
    public String s = "mine";
  }

  static String q(String s) {
    StringBuilder r = new StringBuilder("\"");
    for (char c : s.toCharArray()) {
      if (c == '"' || c == '\\') r.append('\\').append(c);
      else if (c < 32 || c > 126) r.append(String.format("\\u%04x", (int) c));
      else r.append(c);
    }
    return r.append('"').toString();
  }

  static String hex(byte[] b) {
    StringBuilder s = new StringBuilder();
    for (byte x : b) s.append(String.format("%02x", x));
    return s.toString();
  }

  static String all(Iterable<?> items) {
    StringJoiner s = new StringJoiner(",", "[", "]");
    for (Object x : items) s.add(j(x));
    return s.toString();
  }

  // as abs shows them: always with seconds
  static String t(LocalTime x) {
    return x.toString() + (x.getSecond() == 0 && x.getNano() == 0 ? ":00" : "");
  }

  static String t(LocalDateTime x) {
    return x.toLocalDate() + "T" + t(x.toLocalTime());
  }

  static String j(Object o) {
    if (o == null) return "null";
    if (o instanceof Boolean || o instanceof Byte || o instanceof Short || o instanceof Integer || o instanceof Long) {
      return o.toString();
    }
    if (o instanceof AtomicInteger || o instanceof AtomicLong || o instanceof AtomicBoolean) return o.toString();
    if (o instanceof Float || o instanceof Double) {
      double d = ((Number) o).doubleValue();
      if (Double.isNaN(d) || Double.isInfinite(d)) return q(Double.isNaN(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
      return Double.toString(d);
    }
    if (o instanceof Map) {
      StringJoiner s = new StringJoiner(",", "[", "]");
      for (Map.Entry<?, ?> e : ((Map<?, ?>) o).entrySet()) s.add("[" + j(e.getKey()) + "," + j(e.getValue()) + "]");
      return s.toString();
    }
    if (o instanceof Map.Entry) return "[" + j(((Map.Entry<?, ?>) o).getKey()) + "," + j(((Map.Entry<?, ?>) o).getValue()) + "]";
    if (o instanceof Iterable && !(o instanceof java.nio.file.Path)) return all((Iterable<?>) o);
    if (o instanceof byte[]) return q(hex((byte[]) o));
    if (o instanceof char[]) return q(new String((char[]) o));
    if (o.getClass().isArray()) {
      List<Object> l = new ArrayList<>();
      for (int i = 0; i < java.lang.reflect.Array.getLength(o); i++) l.add(java.lang.reflect.Array.get(o, i));
      return all(l);
    }
    if (o instanceof Optional) return j(((Optional<?>) o).orElse(null));
    if (o instanceof OptionalInt) return ((OptionalInt) o).isPresent() ? "" + ((OptionalInt) o).getAsInt() : "null";
    if (o instanceof OptionalLong) return ((OptionalLong) o).isPresent() ? "" + ((OptionalLong) o).getAsLong() : "null";
    if (o instanceof OptionalDouble) return ((OptionalDouble) o).isPresent() ? "" + ((OptionalDouble) o).getAsDouble() : "null";
    if (o instanceof AtomicReference) return j(((AtomicReference<?>) o).get());
    if (o instanceof BitSet) {
      List<Integer> l = new ArrayList<>();
      ((BitSet) o).stream().forEach(l::add);
      return all(l);
    }
    if (o instanceof java.sql.Timestamp) return q(((java.sql.Timestamp) o).toInstant().toString());
    if (o instanceof Date) return q(Instant.ofEpochMilli(((Date) o).getTime()).toString());
    if (o instanceof Calendar) return q(((Calendar) o).toInstant() + "[" + ((Calendar) o).getTimeZone().getID() + "]");
    if (o instanceof TimeZone) return q(((TimeZone) o).getID());
    if (o instanceof Class) return q(((Class<?>) o).getName());
    if (o instanceof InetSocketAddress) return q(((InetSocketAddress) o).getHostName() + ":" + ((InetSocketAddress) o).getPort());
    if (o instanceof Enum) return q(((Enum<?>) o).name());
    if (o instanceof LocalTime) return q(t((LocalTime) o));
    if (o instanceof LocalDateTime) return q(t((LocalDateTime) o));
    if (o instanceof OffsetTime) return q(t(((OffsetTime) o).toLocalTime()) + ((OffsetTime) o).getOffset());
    if (o instanceof OffsetDateTime) return q(t(((OffsetDateTime) o).toLocalDateTime()) + ((OffsetDateTime) o).getOffset());
    if (o instanceof ZonedDateTime) {
      ZonedDateTime z = (ZonedDateTime) o;
      boolean region = !(z.getZone() instanceof ZoneOffset);
      // Kryo 5 does not write the offset of a region
      String offset = region && kryo.equals("5") ? "" : z.getOffset().toString();
      return q(t(z.toLocalDateTime()) + offset + (region ? "[" + z.getZone() + "]" : ""));
    }
    if (o instanceof Pattern || o instanceof URI || o instanceof URL || o instanceof Locale || o instanceof Currency) return q(o.toString());
    return q(o.toString());
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  static void w(String name, Class<?> type, Object value, String is) {
    try {
      TypeSerializer s = new GenericTypeInfo(type).createSerializer(new SerializerConfigImpl());
      DataOutputSerializer snapshot = new DataOutputSerializer(64);
      DataOutputSerializer data = new DataOutputSerializer(64);
      s.serialize(value, data);
      TypeSerializerSnapshot.writeVersionedSnapshot(snapshot, s.snapshotConfiguration());
      out.append("{\"kryo\":" + kryo + ",\"name\":" + q(name) + ",\"class\":" + q(type.getName()) + ",\"snapshot\":\""
          + hex(snapshot.getCopyOfBuffer()) + "\",\"hex\":\"" + hex(data.getCopyOfBuffer()) + "\",\"is\":" + is
          + (value == null ? "" : ",\"hash\":" + value.hashCode()) + "}\n");
    } catch (Throwable e) {
      System.err.println("not written: " + name + " as " + type.getName() + ": " + e);
    }
  }

  static void v(Object value) {
    String is = j(value);
    w(value.getClass().getName(), value.getClass(), value, is);
    w(value.getClass().getName(), Object.class, value, is);
  }

  static void as(Class<?> type, Object value) {
    w(value.getClass().getName(), type, value, j(value));
  }

  public static void main(String[] a) throws Exception {
    kryo = a[1];
    for (Object o : new Object[] {true, (byte) -3, 'x', '\u20ac', (short) -300, 7, -1, 1 << 30, Integer.MIN_VALUE, 7L, -7L,
        Long.MAX_VALUE, Long.MIN_VALUE, 1.5f, -2.25d, Double.NaN, "", "a", "ab", "caf\u00e9 \u2603", "\ud83d\ude00",
        "x".repeat(32), "x".repeat(33), "y".repeat(63), "y".repeat(64), "z".repeat(200), "\u00e9".repeat(9000)}) {
      w(o.getClass().getName(), Object.class, o, j(o));
    }
    for (Object o : new Object[] {new UUID(1, 2), new UUID(-1, Long.MIN_VALUE), UUID.fromString("12345678-1234-5678-9abc-123456789abc")}) v(o);
    for (Object o : new Object[] {BigInteger.ZERO, BigInteger.valueOf(-129), new BigInteger("123456789012345678901234567890"),
        BigDecimal.ZERO, BigDecimal.ONE, new BigDecimal("-1.50"), new BigDecimal("1E+30"),
        new BigDecimal("12345678901234567890.123456789"), new BigDecimal("0.00000001"), new BigDecimal("9223372036854775807")}) v(o);
    for (Object o : new Object[] {LocalDate.of(2024, 2, 29), LocalDate.of(-5, 1, 1), LocalDate.of(12345, 6, 7), LocalTime.of(1, 2, 3, 4),
        LocalTime.of(1, 0), LocalTime.of(1, 2), LocalTime.of(1, 2, 3), LocalTime.MIDNIGHT,
        LocalTime.of(1, 2, 3, 500_000_000), LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4), LocalDateTime.of(1999, 12, 31, 0, 0),
        Instant.ofEpochSecond(1_700_000_000L, 5), Instant.EPOCH, Instant.ofEpochSecond(-1, 999_000_000),
        Duration.ofSeconds(3661, 5), Duration.ofMillis(-1500), Duration.ZERO, Period.of(1, -2, 3), Period.ZERO, Year.of(2024),
        YearMonth.of(2024, 2), YearMonth.of(-44, 3), MonthDay.of(2, 29), ZoneOffset.UTC, ZoneOffset.ofHoursMinutes(5, 30), ZoneOffset.ofTotalSeconds(-3601),
        ZoneId.of("Europe/Paris"), OffsetTime.of(1, 2, 3, 0, ZoneOffset.ofHours(2)),
        OffsetDateTime.of(2024, 2, 29, 1, 2, 3, 4, ZoneOffset.ofHours(-8)),
        ZonedDateTime.of(2024, 2, 29, 1, 2, 3, 4, ZoneId.of("Europe/Paris")), ZonedDateTime.of(2024, 2, 29, 1, 2, 3, 4, ZoneOffset.UTC),
        ZonedDateTime.of(2024, 2, 29, 1, 2, 3, 0, ZoneId.of("UTC+01:00"))}) v(o);
    as(ZoneId.class, ZoneId.of("Europe/Paris"));
    as(ZoneId.class, ZoneOffset.ofHours(1));
    for (Object o : new Object[] {DayOfWeek.FRIDAY, Month.MAY, TimeUnit.SECONDS, ChronoUnit.DAYS, RoundingMode.HALF_UP}) v(o);
    for (Object o : new Object[] {Optional.empty(), Optional.of("x"), Optional.of(new UUID(1, 2)), Optional.of(Optional.of(5)), OptionalInt.empty(), OptionalInt.of(-5), OptionalLong.of(5L), OptionalLong.empty(),
        OptionalDouble.of(0.5), OptionalDouble.empty(), new AtomicInteger(-3), new AtomicLong(1L << 40), new AtomicBoolean(true), new AtomicReference<>("r"), new AtomicReference<>(LocalDate.of(2020, 1, 1))}) v(o);
    java.sql.Timestamp ts = new java.sql.Timestamp(1600000000123L);
    ts.setNanos(123456789);
    GregorianCalendar g = new GregorianCalendar(TimeZone.getTimeZone("Europe/Paris"));
    g.setTimeInMillis(1600000000123L);
    for (Object o : new Object[] {new Date(1700000000123L), new Date(-5), new java.sql.Date(86400000L), new java.sql.Time(3600000L), ts, new java.sql.Timestamp(5L), g,
        TimeZone.getTimeZone("Europe/Paris"), Locale.GERMANY, Locale.ENGLISH, new Locale("de", "CH", "1996"), Currency.getInstance("EUR"), new URI("http://a.b/c?d=e"),
        new URL("http://u:p@a.b:81/c?d=e#f"), Pattern.compile("a+b"), InetSocketAddress.createUnresolved("host.example", 80), StandardCharsets.UTF_8,
        new StringBuilder("built"), new StringBuffer("buffered"), new File("/tmp/x y"), Thread.State.BLOCKED}) v(o);
    as(TimeZone.class, new SimpleTimeZone(3600000, "My/Zone"));
    w("java.lang.Class", Object.class, String.class, q("java.lang.String"));
    w("java.lang.Class", Class.class, String.class, q("java.lang.String"));
    w("java.lang.Class", Class.class, ArrayList.class, q("java.util.ArrayList"));
    w("java.lang.Class", Class.class, int.class, q("int"));
    for (Object o : new Object[] {new byte[] {1, -1}, new short[] {1, -300}, new int[] {1, -1, 1 << 30}, new long[] {1, -1, Long.MIN_VALUE}, new float[] {1.5f},
        new double[] {0.1, -2}, new boolean[] {true, false}, new char[] {'a', '\u20ac'}, new String[] {"a", null, ""}, new Object[] {"a", 1, null, new UUID(1, 2)}, new Integer[] {1, null, 3}, new Long[] {1L, -5L},
        new int[][] {{1, 2}, {}, null}, new UUID[] {new UUID(1, 2), null}, new LocalDate[] {LocalDate.of(2024, 2, 29)}, new BigDecimal[] {new BigDecimal("1.5"), null}, new Object[0],
        new String[][] {{"a"}, {"b", "c"}}, new Date[] {new Date(5)}, new Optional[] {Optional.of(5L), null}, new DayOfWeek[] {DayOfWeek.MONDAY, null}, new Boolean[] {true, null}, new Instant[] {Instant.EPOCH}}) v(o);
    List<Object> mixed = new ArrayList<>(Arrays.asList("a", 1, 2L, null, new UUID(3, 4), LocalDateTime.of(2024, 2, 29, 1, 2)));
    String shared = new String("shared text");
    UUID twice = new UUID(9, 9);
    List<Collection<Object>> kinds = Arrays.asList(new ArrayList<>(), new LinkedList<>(), new Vector<>(), new Stack<>(), new ArrayDeque<>(), new HashSet<>(), new LinkedHashSet<>(),
        new TreeSet<>(), new TreeSet<>(Collections.reverseOrder()), new PriorityQueue<>(), new PriorityQueue<>(Collections.reverseOrder()), new CopyOnWriteArrayList<>(), new CopyOnWriteArraySet<>(), new ConcurrentLinkedQueue<>(), new ConcurrentLinkedDeque<>(),
        new ConcurrentSkipListSet<>(), new LinkedBlockingQueue<>(), new PriorityBlockingQueue<>(), new LinkedBlockingDeque<>(), new ArrayBlockingQueue<>(5));
    for (Collection<Object> c : kinds) {
      v(c);
      c.addAll(Arrays.asList("b", "a", "c"));
      v(c);
    }
    v(mixed);
    v(new ArrayList<>(Arrays.asList(1, 2, 3)));
    v(new ArrayList<>(Arrays.asList(1L, null, 3L)));
    v(new ArrayList<>(Arrays.asList(null, null)));
    v(new ArrayList<>(Arrays.asList(twice, twice, shared, shared)));
    v(new ArrayList<>(Arrays.asList(twice, twice)));
    v(new ArrayList<>(Arrays.asList(new BigDecimal("1.5"), new BigDecimal("2.5"))));
    v(new ArrayList<>(Arrays.asList(LocalDate.of(2024, 1, 1), null, LocalDate.of(2024, 1, 2))));
    v(new ArrayList<>(Arrays.asList(new ArrayList<>(Arrays.asList(1, 2)), new ArrayList<>(Arrays.asList("x")))));
    v(new ArrayList<>(Arrays.asList(Optional.of(1), Optional.empty())));
    v(new ArrayList<>(Arrays.asList(DayOfWeek.MONDAY, DayOfWeek.FRIDAY)));
    v(new ArrayList<>(Arrays.asList(new AbstractMap.SimpleEntry<>("k", 1), new AbstractMap.SimpleEntry<>("l", 2L))));
    v(Arrays.asList("a", "b"));
    v(Arrays.asList((Object) "a", 1));
    v(Collections.emptyList());
    v(Collections.emptyMap());
    v(Collections.emptySet());
    v(Collections.singletonList("s"));
    v(Collections.singletonMap("k", 1L));
    v(Collections.singleton("s"));
    v(Collections.unmodifiableList(new ArrayList<>(Arrays.asList("u", 1))));
    v(Collections.unmodifiableSet(new LinkedHashSet<>(Arrays.asList("u", 1))));
    v(Collections.unmodifiableCollection(new ArrayList<>(Arrays.asList("u", 1))));
    v(Collections.unmodifiableMap(new LinkedHashMap<>(Collections.singletonMap("k", 1L))));
    v(Collections.synchronizedList(new ArrayList<>(Arrays.asList("u", 1))));
    v(Collections.synchronizedMap(new LinkedHashMap<>(Collections.singletonMap("k", 1L))));
    v(Collections.nCopies(3, "n"));
    v(List.of());
    v(List.of("a"));
    v(List.of("a", 1, 2L));
    v(Set.of("a"));
    v(Set.of(1, 2, 3));
    v(Map.of());
    v(Map.of("k", 5));
    v(Map.of("k", 5, "l", 6, "m", 7));
    v(new ArrayList<>(Arrays.asList("a", "b", "c", "d")).subList(1, 3));
    for (Map<Object, Object> m : Arrays.<Map<Object, Object>>asList(new HashMap<>(), new LinkedHashMap<>(), new TreeMap<>(), new TreeMap<>(Collections.reverseOrder()), new ConcurrentHashMap<>(), new ConcurrentSkipListMap<>(),
        new Hashtable<>(), new IdentityHashMap<>(), new WeakHashMap<>())) {
      v(m);
      m.put("a", 1);
      m.put("b", new ArrayList<>(Arrays.asList(1L, 2L)));
      m.put("c", LocalDate.of(2024, 2, 29));
      v(m);
    }
    HashMap<Object, Object> nulls = new LinkedHashMap<>();
    nulls.put(null, 1);
    nulls.put("x", null);
    nulls.put("nested", new HashMap<>(Collections.singletonMap(new UUID(1, 2), new BigDecimal("5.5"))));
    v(nulls);
    Properties p = new Properties();
    p.put("a", "1");
    v(p);
    EnumMap<DayOfWeek, Object> em = new EnumMap<>(DayOfWeek.class);
    em.put(DayOfWeek.MONDAY, 1);
    v(em);
    v(EnumSet.of(DayOfWeek.MONDAY, DayOfWeek.SUNDAY));
    v(EnumSet.noneOf(DayOfWeek.class));
    BitSet bits = new BitSet();
    bits.set(1);
    bits.set(200);
    v(bits);
    v(new AbstractMap.SimpleEntry<>("k", 1));
    v(new AbstractMap.SimpleEntry<>("k", null));
    v(new AbstractMap.SimpleImmutableEntry<>(new UUID(1, 2), new ArrayList<>(Arrays.asList(1))));
    v(Map.entry("k", 1));
    // of classes that only the job has: null says that nothing but its own class can read it
    w("mine", Mine.class, new Mine(), "{\"opaque\":true}");
    w("mine", Object.class, new Mine(), "{\"opaque\":true}");
    w("mine", ArrayList.class, new ArrayList<>(Arrays.asList("a", new Mine())), "{\"opaque\":true}");
    w("throwable", Object.class, new IllegalStateException("gone"), "{\"opaque\":true}");
    try (PrintStream f = new PrintStream(a[0], "UTF-8")) {
      f.print(out);
    }
  }
}
