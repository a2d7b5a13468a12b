import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.Serializer;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import com.google.protobuf.DescriptorProtos;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.ListValue;
import com.google.protobuf.Message;
import com.google.protobuf.Struct;
import com.google.protobuf.StructProto;
import com.google.protobuf.Value;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import org.apache.avro.Schema;
import org.apache.avro.generic.*;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.*;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.streaming.api.datastream.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Makes the snapshots of Flink 2.3 in tests/data/flink/values.tar.xz: state of Avro records, and of Protobuf messages,
 * which a serializer of Kryo writes as people do it, or the job itself as bytes. What each key holds follows from its
 * number (tests/flink/state/test_schemas.py). Needs flink-avro and protobuf-java on the class path.
 *
 * <p>Arguments: an empty directory, then options of Flink as key=value.
 */
public class ValuesJob {
  static final int KEYS = 6;
  static final Set<String> done = Collections.synchronizedSet(new HashSet<>());

  static final String SCHEMA =
      "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":["
          + "{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"count\",\"type\":\"int\"},"
          + "{\"name\":\"price\",\"type\":\"double\"},{\"name\":\"weight\",\"type\":\"float\"},"
          + "{\"name\":\"paid\",\"type\":\"boolean\"},{\"name\":\"note\",\"type\":[\"null\",\"string\"]},"
          + "{\"name\":\"kind\",\"type\":{\"type\":\"enum\",\"name\":\"Kind\",\"symbols\":[\"SMALL\",\"LARGE\"]}},"
          + "{\"name\":\"code\",\"type\":{\"type\":\"fixed\",\"name\":\"Code\",\"size\":3}},"
          + "{\"name\":\"raw\",\"type\":\"bytes\"},"
          + "{\"name\":\"items\",\"type\":{\"type\":\"array\",\"items\":{\"type\":\"record\",\"name\":\"Item\",\"fields\":["
          + "{\"name\":\"name\",\"type\":\"string\"},{\"name\":\"n\",\"type\":\"int\"}]}}},"
          + "{\"name\":\"tags\",\"type\":{\"type\":\"map\",\"values\":\"long\"}},"
          + "{\"name\":\"either\",\"type\":[\"long\",\"string\"]},"
          + "{\"name\":\"day\",\"type\":{\"type\":\"int\",\"logicalType\":\"date\"}},"
          + "{\"name\":\"next\",\"type\":[\"null\",\"Order\"],\"default\":null}]}";

  static Schema schema() {
    return new Schema.Parser().parse(SCHEMA);
  }

  static GenericRecord order(long k, boolean inner) {
    Schema s = schema();
    GenericRecord r = new GenericData.Record(s);
    r.put("id", k - 3);
    r.put("count", (int) (k * 1000));
    r.put("price", k / 4.0);
    r.put("weight", k / 2.0f);
    r.put("paid", k % 2 == 0);
    r.put("note", k % 3 == 0 ? null : "caf\u00e9 " + k);
    r.put("kind", new GenericData.EnumSymbol(s.getField("kind").schema(), k % 2 == 0 ? "SMALL" : "LARGE"));
    r.put("code", new GenericData.Fixed(s.getField("code").schema(), new byte[] {1, 2, (byte) k}));
    r.put("raw", ByteBuffer.wrap(new byte[(int) k]));
    List<GenericRecord> items = new ArrayList<>();
    for (int i = 0; i < k; i++) {
      GenericRecord item = new GenericData.Record(s.getField("items").schema().getElementType());
      item.put("name", "item-" + i);
      item.put("n", i);
      items.add(item);
    }
    r.put("items", items);
    r.put("tags", k == 0 ? new HashMap<>() : new HashMap<>(Map.of("t" + k, k)));
    r.put("either", k % 2 == 0 ? (Object) k : "text " + k);
    r.put("day", (int) (19000 + k));
    r.put("next", inner ? order(k + 1, false) : null);
    return r;
  }

  static FieldDescriptorProto field(long k) {
    return FieldDescriptorProto.newBuilder()
        .setName("field_" + k)
        .setNumber((int) k - 2)
        .setType(FieldDescriptorProto.Type.TYPE_STRING)
        .setLabel(FieldDescriptorProto.Label.LABEL_REPEATED)
        .setOptions(DescriptorProtos.FieldOptions.newBuilder().setPacked(k % 2 == 0))
        .build();
  }

  static Struct struct(long k) {
    return Struct.newBuilder()
        .putFields("n", Value.newBuilder().setNumberValue(k / 2.0).build())
        .putFields("list", Value.newBuilder().setListValue(ListValue.newBuilder()
            .addValues(Value.newBuilder().setStringValue("caf\u00e9"))
            .addValues(Value.newBuilder().setBoolValue(true))).build())
        .build();
  }

  /** As the documentation of Flink has people write it: the length, then the message. */
  public static class ProtoSerializer extends Serializer<Message> {
    @Override
    public void write(Kryo kryo, Output output, Message message) {
      byte[] bytes = message.toByteArray();
      output.writeVarInt(bytes.length, true);
      output.writeBytes(bytes);
    }

    @Override
    public Message read(Kryo kryo, Input input, Class<? extends Message> type) {
      byte[] bytes = input.readBytes(input.readVarInt(true));
      try {
        return (Message) type.getMethod("parseFrom", byte[].class).invoke(null, (Object) bytes);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  static class Slow implements MapFunction<Long, Long> {
    @Override
    public Long map(Long x) throws Exception {
      Thread.sleep(30);
      return x;
    }
  }

  static class Keep extends KeyedProcessFunction<String, Long, Long> {
    transient ValueState<GenericRecord> avro;
    transient ListState<GenericRecord> avros;
    transient ValueState<FieldDescriptorProto> proto;
    transient ValueState<Struct> tree;
    transient ValueState<byte[]> bytes;
    transient ValueState<Long> behind;

    @Override
    public void open(org.apache.flink.api.common.functions.OpenContext c) {
      avro = getRuntimeContext().getState(new ValueStateDescriptor<>("avro", new GenericRecordAvroTypeInfo(schema())));
      avros = getRuntimeContext().getListState(
          new ListStateDescriptor<>("avros", new GenericRecordAvroTypeInfo(schema())));
      proto = getRuntimeContext().getState(new ValueStateDescriptor<>("proto", FieldDescriptorProto.class));
      tree = getRuntimeContext().getState(new ValueStateDescriptor<>("tree", Struct.class));
      bytes = getRuntimeContext().getState(new ValueStateDescriptor<>("bytes", byte[].class));
      behind = getRuntimeContext().getState(new ValueStateDescriptor<>("behind", Types.LONG));
    }

    @Override
    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      long k = x % KEYS;
      avro.update(order(k, true));
      avros.update(Arrays.asList(order(k, false), order(k + 1, false)));
      proto.update(field(k));
      tree.update(struct(k));
      bytes.update(struct(k).toByteArray());
      behind.update(k);
      done.add(c.getCurrentKey());
    }
  }

  public static void main(String[] a) throws Exception {
    String dir = a[0];
    Configuration c = Local.options(a, 1);
    Local.keepCheckpoints(c, dir + "/ck", "300ms", 1);
    c.setString("execution.checkpointing.storage", "filesystem");
    c.setString("execution.checkpointing.data-inline-threshold", "200b");
    String kryo = "{type: kryo, kryo-type: registered, class: ValuesJob$ProtoSerializer}";
    c.setString("pipeline.serialization-config",
        "[com.google.protobuf.DescriptorProtos$FieldDescriptorProto: " + kryo + ", com.google.protobuf.Struct: " + kryo
            + "]");
    DescriptorProtos.FileDescriptorSet descriptors = DescriptorProtos.FileDescriptorSet.newBuilder()
        .addFile(StructProto.getDescriptor().toProto())
        .addFile(DescriptorProtos.getDescriptor().toProto())
        .build();
    Files.write(Paths.get(dir, "descriptors.pb"), descriptors.toByteArray());
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    e.setMaxParallelism(8);
    e.fromSequence(0, 99_999_999L).uid("numbers").map(new Slow()).returns(Types.LONG)
        .keyBy(x -> "key-" + (x % KEYS), Types.STRING)
        .process(new Keep())
        .uid("keep")
        .returns(Types.LONG)
        .print();
    JobClient j = e.executeAsync("values");
    while (done.size() < KEYS) {
      Thread.sleep(50);
    }
    Thread.sleep(1500);
    Local.end(j, dir + "/sp", "CANONICAL");
  }
}
