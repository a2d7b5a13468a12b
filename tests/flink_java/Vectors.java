import org.apache.flink.api.common.typeutils.*;
import org.apache.flink.api.common.typeutils.base.*;
import org.apache.flink.api.common.typeutils.base.array.*;
import org.apache.flink.api.java.typeutils.*;
import org.apache.flink.api.java.typeutils.runtime.*;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.core.memory.*;
import org.apache.flink.runtime.state.*;
import org.apache.flink.runtime.state.ttl.*;
import org.apache.flink.streaming.api.operators.*;
import org.apache.flink.streaming.api.windowing.windows.*;
import org.apache.flink.types.*;
import org.apache.flink.table.data.*;
import org.apache.flink.table.data.binary.*;
import org.apache.flink.table.data.writer.*;
import org.apache.flink.table.runtime.typeutils.*;
import org.apache.flink.table.types.logical.*;
import java.math.*;
import java.time.*;
import java.util.*;

/**
 * Makes tests/data/flink/vectors.jsonl: for each of Flink's serializers its snapshot, what getLength says, and values
 * with their bytes, their hashCode and their key group of 128. Argument: the file to write.
 */
public class Vectors {
  static StringBuilder out = new StringBuilder();
  static String hex(byte[] b) {
    StringBuilder s=new StringBuilder();
    for(byte x:b)s.append(String.format("%02x",x));
    return s.toString();
  }
  static String q(String s) {
    StringBuilder r=new StringBuilder("\"");
    for(char c:s.toCharArray()) {
      if(c=='"'||c=='\\')r.append('\\').append(c);
      else if(c<32||c>126)r.append(String.format("\\u%04x",(int)c));
      else r.append(c);
    }
    return r.append('"').toString();
  }
  static String j(Object o) {
    if(o==null)return "null";
    if(o instanceof Boolean||o instanceof Integer||o instanceof Long||o instanceof Short||o instanceof Byte)return o.toString();
    if(o instanceof Float||o instanceof Double) {
      double d=((Number)o).doubleValue();
      if(Double.isNaN(d))return "NaN";
      if(Double.isInfinite(d))return d>0?"Infinity":"-Infinity";
      return o instanceof Float?Double.toString(d):o.toString();
    }
    if(o instanceof byte[])return "{\"hex\":"+q(hex((byte[])o))+"}";
    if(o instanceof Pojo) {
      Pojo p=(Pojo)o;
      String s="{\"id\":"+j(p.id)+",\"name\":"+j(p.name)+",\"inner\":"+j(p.inner);
      if(o instanceof SubPojo)s+=",\"@class\":"+q(o.getClass().getName())+",\"SubPojo.extra\":"+j(((SubPojo)o).extra);
      return s+"}";
    }
    if(o instanceof Inner)return "{\"x\":"+((Inner)o).x+"}";
    if(o instanceof Map) {
      StringBuilder s=new StringBuilder("{\"map\":[");
      boolean f=true;
      for(Map.Entry<?, ?> e:((Map<?, ?>)o).entrySet()) {
        if(!f)s.append(',');
        f=false;
        s.append('[').append(j(e.getKey())).append(',').append(j(e.getValue())).append(']');
      }
      return s.append("]}").toString();
    }
    if(o instanceof Collection)return j(((Collection<?>)o).toArray());
    if(o instanceof Object[]) {
      StringBuilder s=new StringBuilder("[");
      boolean f=true;
      for(Object x:(Object[])o) {
        if(!f)s.append(',');
        f=false;
        s.append(j(x));
      }
      return s.append(']').toString();
    }
    if(o.getClass().isArray()) {
      int n=java.lang.reflect.Array.getLength(o);
      Object[] a=new Object[n];
      for(int i=0;i<n;i++)a[i]=java.lang.reflect.Array.get(o, i);
      if(o instanceof char[])return q(new String((char[])o));
      return j(a);
    }
    if(o instanceof Tuple) {
      Tuple t=(Tuple)o;
      Object[] a=new Object[t.getArity()];
      for(int i=0;i<a.length;i++)a[i]=t.getField(i);
      return j(a);
    }
    if(o instanceof Row) {
      Row r=(Row)o;
      Object[] a=new Object[r.getArity()];
      for(int i=0;i<a.length;i++)a[i]=r.getField(i);
      return "{\"row_kind\":"+q(r.getKind().shortString())+",\"row\":"+j(a)+"}";
    }
    if(o instanceof Either) {
      Either<?, ?> e=(Either<?, ?>)o;
      return e.isLeft()?"{\"left\":"+j(e.left())+"}":"{\"right\":"+j(e.right())+"}";
    }
    if(o instanceof java.sql.Timestamp) {
      return "{\"class\":\"Timestamp\",\"millis\":"+((java.sql.Timestamp)o).getTime()+",\"nanos\":"+((java.sql.Timestamp)o).getNanos()+"}";
    }
    if(o instanceof java.util.Date)return "{\"class\":\"Date\",\"millis\":"+((java.util.Date)o).getTime()+"}";
    if(o instanceof Enum)return q(((Enum<?>)o).name());
    if(o instanceof TimeWindow)return "["+((TimeWindow)o).getStart()+","+((TimeWindow)o).getEnd()+"]";
    if(o instanceof org.apache.flink.table.runtime.operators.window.TimeWindow)return "["+((org.apache.flink.table.runtime.operators.window.TimeWindow)o).getStart()+","+((org.apache.flink.table.runtime.operators.window.TimeWindow)o).getEnd()+"]";
    if(o instanceof TimerHeapInternalTimer) {
      TimerHeapInternalTimer<?, ?> t=(TimerHeapInternalTimer<?, ?>)o;
      return "["+t.getTimestamp()+","+j(t.getKey())+","+j(t.getNamespace())+"]";
    }
    if(o instanceof VoidNamespace||o instanceof GlobalWindow)return "null";
    if(o instanceof StringValue||o instanceof BigInteger||o instanceof BigDecimal||o instanceof Character||o instanceof LocalDate||o instanceof LocalTime||o instanceof Instant||o instanceof LocalDateTime||o instanceof String||o instanceof StringData||o instanceof DecimalData||o instanceof TimestampData)return q(o.toString());
    if(o instanceof IntValue)return ""+((IntValue)o).getValue();
    if(o instanceof LongValue)return ""+((LongValue)o).getValue();
    throw new RuntimeException("no json for "+o.getClass());
  }
  static <T> void v(String name, TypeSerializer<T> s, T... values) throws Exception {
    w(name, s, null, values);
  }
  @SafeVarargs static <T> void w(String name, TypeSerializer<T> s, String[] json, T... values) throws Exception {
    DataOutputSerializer snap=new DataOutputSerializer(64);
    TypeSerializerSnapshot.writeVersionedSnapshot(snap, s.snapshotConfiguration());
    out.append("{\"name\":"+q(name)+",\"length\":"+s.getLength()+",\"snapshot\":"+q(hex(snap.getCopyOfBuffer()))+",\"values\":[");
    for(int i=0;i<values.length;i++) {
      DataOutputSerializer d=new DataOutputSerializer(64);
      s.serialize(values[i], d);
      String hash="null";
      if(values[i]!=null && !values[i].getClass().isArray()) hash=""+values[i].hashCode();
      String group="null";
      if(values[i]!=null
            && !values[i].getClass().isArray()) group=""+KeyGroupRangeAssignment.assignToKeyGroup(values[i],128);
      if(i>0)out.append(',');
      out.append("{\"hex\":"+q(hex(d.getCopyOfBuffer()))+",\"is\":"+(json!=null?json[i]:j(values[i]))+",\"hash\":"+hash+",\"group\":"+group+"}");
    }
    out.append("]}\n");
  }
  public enum Color {
    RED, GREEN, BLUE
  }
  public static class Inner {
    public int x;
    public Inner() {
    }
    Inner(int x) {
      this.x=x;
    }
  }
  public static class Pojo {
    public long id;
    public String name;
    public Inner inner;
    public Pojo() {
    }
    Pojo(long i, String n, Inner in) {
      id=i;
      name=n;
      inner=in;
    }
  }
  public static class SubPojo extends Pojo {
    public double extra;
    public SubPojo() {
    }
    SubPojo(long i, String n, double e) {
      super(i, n, null);
      extra=e;
    }
  }
  static <T> TypeSerializer<T> ser(TypeInformation<T> t, SerializerConfigImpl c) {
    return t.createSerializer(c);
  }
  public static void main(String[] args) throws Exception {
    SerializerConfigImpl c=new SerializerConfigImpl();
    v("string",StringSerializer.INSTANCE,"","a","plain","caf\u00e9 \u2603","\ud83d\ude00 astral",null,
          "x".repeat(126),"x".repeat(127),"y".repeat(300),"\u0000nul","\u007f\u0080\u3fff\u4000\uffff");
    v("boolean",BooleanSerializer.INSTANCE,true,false);
    v("byte",ByteSerializer.INSTANCE,(byte)0,(byte)-128,(byte)127);
    v("short",ShortSerializer.INSTANCE,(short)0,Short.MIN_VALUE,Short.MAX_VALUE);
    v("int",IntSerializer.INSTANCE,0,1,-1,Integer.MIN_VALUE,Integer.MAX_VALUE);
    v("long",LongSerializer.INSTANCE,0L,1L,-1L,Long.MIN_VALUE,Long.MAX_VALUE,1L<<40);
    v("float",FloatSerializer.INSTANCE,0f,1.5f,-0f,Float.NaN,Float.POSITIVE_INFINITY);
    v("double",DoubleSerializer.INSTANCE,0d,0.1d,-0d,Double.NaN,Double.NEGATIVE_INFINITY,1e300);
    v("char",CharSerializer.INSTANCE,'a','\u20ac');
    v("bigint",BigIntSerializer.INSTANCE,BigInteger.ZERO,BigInteger.ONE,BigInteger.TEN,BigInteger.valueOf(-1),
          BigInteger.valueOf(255),new BigInteger("123456789012345678901234567890"),
          new BigInteger("-123456789012345678901234567890"),null,BigInteger.valueOf(2));
    v("bigdec",BigDecSerializer.INSTANCE,BigDecimal.ZERO,BigDecimal.ONE,BigDecimal.TEN,new BigDecimal("0.0000"),
          new BigDecimal("-1.50"),new BigDecimal("1E+30"),new BigDecimal("12345678901234567890.123456789"),
          new BigDecimal("0.00000001"),null,new BigDecimal("1.0"),new BigDecimal("-9223372036854775808"),
          new BigDecimal("9223372036854775807"));
    v("date",DateSerializer.INSTANCE,new java.util.Date(0),new java.util.Date(1700000000123L),
          new java.util.Date(-1),null);
    v("sqldate",SqlDateSerializer.INSTANCE,new java.sql.Date(86400000L),null);
    v("sqltime",SqlTimeSerializer.INSTANCE,new java.sql.Time(3600000L),null);
    java.sql.Timestamp ts=new java.sql.Timestamp(1600000000123L);
    ts.setNanos(123456789);
    v("sqltimestamp",SqlTimestampSerializer.INSTANCE,ts,new java.sql.Timestamp(-1),null);
    v("localdate",LocalDateSerializer.INSTANCE,LocalDate.of(2024,2,29),LocalDate.MIN,LocalDate.MAX,
          LocalDate.of(-5,1,1),LocalDate.of(12345,6,7),null);
    v("localtime",LocalTimeSerializer.INSTANCE,LocalTime.of(1,2,3,4),LocalTime.of(23,59,59,999999999),
          LocalTime.of(1,2,3),null,LocalTime.of(4,5,6,120000000),LocalTime.of(4,5,6,1000));
    v("localdatetime",LocalDateTimeSerializer.INSTANCE,LocalDateTime.of(2024,2,29,1,2,3,4),
          LocalDateTime.of(1900,1,1,0,0,1),null);
    v("instant",InstantSerializer.INSTANCE,Instant.ofEpochSecond(0,1),
          Instant.parse("2023-11-14T22:13:23.123456789Z"),Instant.MAX,Instant.MIN,Instant.ofEpochSecond(-1,5),null);
    v("void",VoidSerializer.INSTANCE,(Void)null);
    v("stringvalue",StringValueSerializer.INSTANCE,new StringValue("abc"),new StringValue(""));
    v("intvalue",IntValueSerializer.INSTANCE,new IntValue(7));
    v("longvalue",LongValueSerializer.INSTANCE,new LongValue(-7));
    v("bytes",BytePrimitiveArraySerializer.INSTANCE,new byte[]{},new byte[]{1,2,(byte)255});
    v("booleans",BooleanPrimitiveArraySerializer.INSTANCE,new boolean[]{true,false});
    v("shorts",ShortPrimitiveArraySerializer.INSTANCE,new short[]{1,-1});
    v("ints",IntPrimitiveArraySerializer.INSTANCE,new int[]{1,-1});
    v("longs",LongPrimitiveArraySerializer.INSTANCE,new long[]{},new long[]{1,-1,Long.MAX_VALUE});
    v("floats",FloatPrimitiveArraySerializer.INSTANCE,new float[]{1.5f});
    v("doubles",DoublePrimitiveArraySerializer.INSTANCE,new double[]{0.1,-2});
    v("chars",CharPrimitiveArraySerializer.INSTANCE,new char[]{'a','\u20ac'});
    v("strings",StringArraySerializer.INSTANCE,new String[]{"a",null,""});
    v("genericarray",(TypeSerializer)new GenericArraySerializer<>(Long.class,LongSerializer.INSTANCE),
          (Object)new Long[]{1L,null,3L});
    v("enum",new EnumSerializer<>(Color.class),Color.RED,Color.BLUE);
    v("list",new ListSerializer<>(StringSerializer.INSTANCE),Arrays.asList("a","b"),Collections.emptyList());
    v("listlong",new ListSerializer<>(LongSerializer.INSTANCE),Arrays.asList(1L,2L));
    Map<String, Long> m=new LinkedHashMap<>();
    m.put("a",1L);
    m.put("b",null);
    v("map",new MapSerializer<>(StringSerializer.INSTANCE,LongSerializer.INSTANCE),m);
    v("set",(TypeSerializer)new SetSerializer<>(StringSerializer.INSTANCE),
          new LinkedHashSet<>(Arrays.asList("a",null,"c")));
    TypeSerializer<Tuple3<String, Long, Double>> t3=ser(TypeInformation.of(new TypeHint<Tuple3<String, Long,
          Double>>(){}), c);
    v("tuple3",t3,Tuple3.of("a",1L,2.5),Tuple3.of("",-1L,Double.NaN));
    v("tuplefixed",ser(TypeInformation.of(new TypeHint<Tuple2<Long,Integer>>(){}),c),Tuple2.of(1L,2),
          Tuple2.of(-1L,-2));
    v("tuplenested",ser(TypeInformation.of(new TypeHint<Tuple2<Tuple2<String,Integer>,Boolean>>(){}),c),
          Tuple2.of(Tuple2.of("n",5),true));
    v("either",new EitherSerializer<>(StringSerializer.INSTANCE,LongSerializer.INSTANCE),Either.Left("l"),
          Either.Right(9L));
    v("nullable",NullableSerializer.wrap(LongSerializer.INSTANCE,false),1L,null);
    v("nullablepadded",NullableSerializer.wrap(LongSerializer.INSTANCE,true),1L,null);
    TypeSerializer<Row> row=Types.ROW(Types.INT, Types.STRING, Types.DOUBLE, Types.LONG, Types.INT, Types.INT,
          Types.INT, Types.INT, Types.BOOLEAN).createSerializer(c);
    Row r2=Row.withPositions(RowKind.UPDATE_AFTER, 9);
    r2.setField(0, 1);
    r2.setField(1,"x");
    r2.setField(8, true);
    Row r3=Row.of(1,"a",2.5,3L,4,5,6,7,false);
    Row r4=Row.withPositions(RowKind.DELETE, 9);
    for(int i=0;i<9;i++)r4.setField(i, r3.getField(i));
    v("row",row,r3,r2,Row.of(null,null,null,null,null,null,null,null,null),r4);
    v("rowkey",Types.ROW(Types.STRING).createSerializer(c),Row.of("user-1"),Row.of("caf\u00e9"));
    v("rowkey2",Types.ROW(Types.LONG,Types.STRING).createSerializer(c),Row.of(5L,"user-1"));
    v("pojo",ser(TypeInformation.of(Pojo.class),c),new Pojo(1,"one",new Inner(3)),new Pojo(-2,null,null));
    SerializerConfigImpl reg=new SerializerConfigImpl();
    reg.registerPojoType(SubPojo.class);
    v("pojoregistered",ser(TypeInformation.of(Pojo.class),reg),new Pojo(1,"one",new Inner(3)),new SubPojo(7,
          "sub",2.5));
    TypeSerializer<Pojo> other=ser(TypeInformation.of(Pojo.class), c);
    {
      DataOutputSerializer d=new DataOutputSerializer(8);
      other.serialize(new SubPojo(1,"",1),d);
    }
    v("pojosubclass",other,new Pojo(1,"one",null),new SubPojo(7,"sub",2.5));
    v("timer",(TypeSerializer)new TimerSerializer<>(StringSerializer.INSTANCE,new TimeWindow.Serializer()),
          new TimerHeapInternalTimer<>(-5L,"k",new TimeWindow(1,2)),new TimerHeapInternalTimer<>(Long.MAX_VALUE,
          "k2",new TimeWindow(-1,2)));
    v("timewindow",new TimeWindow.Serializer(),new TimeWindow(1,1000),new TimeWindow(-1000,Long.MAX_VALUE));
    v("globalwindow",(TypeSerializer)new GlobalWindow.Serializer(),GlobalWindow.get());
    v("voidnamespace",VoidNamespaceSerializer.INSTANCE,VoidNamespace.INSTANCE);
    v("sqltimewindow",
          (TypeSerializer)new org.apache.flink.table.runtime.operators.window.TimeWindow.Serializer(),
          new org.apache.flink.table.runtime.operators.window.TimeWindow(1,2));
    // -- SQL
    LogicalType[] types={new BooleanType(),new TinyIntType(),new SmallIntType(),new IntType(),new BigIntType(),
          new FloatType(),new DoubleType(),new CharType(3),new VarCharType(100),new VarBinaryType(100),
          new DecimalType(10,2),new DecimalType(30,5),new DateType(),new TimeType(3),new TimestampType(3),
          new TimestampType(6),new TimestampType(9),new LocalZonedTimestampType(3),
          new LocalZonedTimestampType(9),
          new YearMonthIntervalType(YearMonthIntervalType.YearMonthResolution.MONTH),
          new DayTimeIntervalType(DayTimeIntervalType.DayTimeResolution.SECOND),new ArrayType(new IntType()),
          new ArrayType(new VarCharType(50)),new MapType(new VarCharType(10),new BigIntType()),
          new MultisetType(new VarCharType(10)),RowType.of(new LogicalType[]{new IntType(),new VarCharType(20)},
          new String[]{"a","b"}),new ArrayType(new BooleanType()),new ArrayType(new DecimalType(30,5)),
          new ArrayType(RowType.of(new IntType()))};
    RowDataSerializer rs=new RowDataSerializer(types);
    Map<StringData, Long> mm=new LinkedHashMap<>();
    mm.put(StringData.fromString("k1"),1L);
    mm.put(StringData.fromString("a longer key"),null);
    Map<StringData, Integer> ms=new LinkedHashMap<>();
    ms.put(StringData.fromString("m"),2);
    GenericRowData g=GenericRowData.of(true,(byte)-1,(short)-300,70000,1L<<40,1.5f,0.1d,
          StringData.fromString("abc"),StringData.fromString("a longer text than seven caf\u00e9"),new byte[]{1,
          2,3,4,5,6,7,8,9},DecimalData.fromBigDecimal(new BigDecimal("12345.67"),10,2),
          DecimalData.fromBigDecimal(new BigDecimal("-1234567890123456789012345.12345"),30,5),19000,3723004,
          TimestampData.fromEpochMillis(1700000000123L),TimestampData.fromEpochMillis(1700000000123L,456000),
          TimestampData.fromEpochMillis(-1L,999999),TimestampData.fromEpochMillis(5L),
          TimestampData.fromEpochMillis(5L,7),14,86400000L,new GenericArrayData(new Integer[]{1,null,3}),
          new GenericArrayData(new StringData[]{StringData.fromString("short"),null,
          StringData.fromString("not so very short")}),new GenericMapData(mm),new GenericMapData(ms),
          GenericRowData.of(5,StringData.fromString("inner text is long")),
          new GenericArrayData(new boolean[]{true,false}),
          new GenericArrayData(new DecimalData[]{DecimalData.fromBigDecimal(new BigDecimal("1.00000"),30,5)}),
          new GenericArrayData(new RowData[]{GenericRowData.of(9)}));
    g.setRowKind(RowKind.UPDATE_BEFORE);
    GenericRowData nulls=new GenericRowData(types.length);
    String gj="{\"row_kind\":\"-U\",\"row\":[true,-1,-300,70000,1099511627776,1.5,0.1,\"abc\",\"a longer text than seven caf\\u00e9\",{\"hex\":\"010203040506070809\"},\"12345.67\",\"-1234567890123456789012345.12345\",\"2022-01-08\",\"01:02:03.004\",\"2023-11-14T22:13:20.123\",\"2023-11-14T22:13:20.123456\",\"1969-12-31T23:59:59.999999999\",\"1970-01-01T00:00:00.005\",\"1970-01-01T00:00:00.005000007Z\",14,86400000,[1,null,3],[\"short\",null,\"not so very short\"],{\"map\":[[\"k1\",1],[\"a longer key\",null]]},{\"map\":[[\"m\",2]]},{\"row_kind\":\"+I\",\"row\":[5,\"inner text is long\"]},[true,false],[\"1.00000\"],[{\"row_kind\":\"+I\",\"row\":[9]}]]}";
    StringBuilder nj=new StringBuilder("{\"row_kind\":\"+I\",\"row\":[");
    for(int i=0;i<types.length;i++)nj.append(i>0?",":"").append("null");
    nj.append("]}");
    w("rowdata",(TypeSerializer)rs,new String[]{gj,nj.toString()},rs.toBinaryRow(g).copy(),
          rs.toBinaryRow(nulls).copy());
    RowDataSerializer ks=new RowDataSerializer(new VarCharType(100), new BigIntType());
    BinaryRowData k1=ks.toBinaryRow(GenericRowData.of(StringData.fromString("user-12"),3L)).copy(),
          k2=ks.toBinaryRow(GenericRowData.of(StringData.fromString("a much longer user name"),-3L)).copy(),
          k3=ks.toBinaryRow(GenericRowData.of(null,null)).copy();
    w("rowdatakey",(TypeSerializer)ks,new String[]{"{\"row_kind\":\"+I\",\"row\":[\"user-12\",3]}",
          "{\"row_kind\":\"+I\",\"row\":[\"a much longer user name\",-3]}",
          "{\"row_kind\":\"+I\",\"row\":[null,null]}"},k1,k2,k3);
    w("binaryrow",(TypeSerializer)new BinaryRowDataSerializer(2),new String[]{"\"opaque\""},k1);
    w("arraydata",(TypeSerializer)new ArrayDataSerializer(new BigIntType()),new String[]{"[1,null,3]"},
          new GenericArrayData(new Long[]{1L,null,3L}));
    w("mapdata",(TypeSerializer)new MapDataSerializer(new VarCharType(10),new BigIntType()),
          new String[]{"{\"map\":[[\"k1\",1],[\"a longer key\",null]]}"},new GenericMapData(mm));
    w("stringdata",(TypeSerializer)StringDataSerializer.INSTANCE,new String[]{"\"caf\\u00e9\""},
          StringData.fromString("caf\u00e9"));
    w("decimaldata",(TypeSerializer)new DecimalDataSerializer(10,2),new String[]{"\"1.20\""},
          DecimalData.fromBigDecimal(new BigDecimal("1.2"),10,2));
    w("decimaldata30",(TypeSerializer)new DecimalDataSerializer(30,2),new String[]{"\"-1.20\""},
          DecimalData.fromBigDecimal(new BigDecimal("-1.2"),30,2));
    w("timestampdata3",(TypeSerializer)new TimestampDataSerializer(3),
          new String[]{"\"2023-11-14T22:13:20.123\""},TimestampData.fromEpochMillis(1700000000123L));
    w("timestampdata6",(TypeSerializer)new TimestampDataSerializer(6),
          new String[]{"\"2023-11-14T22:13:20.123456\""},TimestampData.fromEpochMillis(1700000000123L,456000));
    LinkedList<Long> ll=new LinkedList<>(Arrays.asList(1L, null, 3L));
    w("linkedlist",(TypeSerializer)new LinkedListSerializer<>(LongSerializer.INSTANCE),new String[]{"[1,null,3]"},ll);
    SortedMap<Long, String> sm=new TreeMap<>();
    sm.put(1L,"a");
    sm.put(2L, null);
    w("nullawaremap",
          (TypeSerializer)new org.apache.flink.table.dataview.NullAwareMapSerializer<>(StringSerializer.INSTANCE,LongSerializer.INSTANCE),new String[]{"[[\"a\",1],[null,2]]"},nullKey());
    v("sortedlong",(TypeSerializer)org.apache.flink.table.runtime.operators.sink.SortedLongSerializer.INSTANCE,
          -5L,5L);
    java.io.PrintStream p=new java.io.PrintStream(args[0],"UTF-8");
    p.print(out);
    p.close();
  }
  static Map<String, Long> nullKey() {
    Map<String, Long> m=new LinkedHashMap<>();
    m.put("a",1L);
    m.put(null, 2L);
    return m;
  }
}
