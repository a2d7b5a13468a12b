import java.util.*;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.formats.avro.typeutils.AvroSerializer;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/**
 * A job whose classes are declared elsewhere, anew for each version of the job: `shop.Order`, `shop.User` (the key) and
 * `shop.Tag` (of a map's keys), and the schema of an Avro record. It touches all state of each key, says `TOUCHED`, takes
 * a savepoint and ends.
 *
 * <p>Arguments: a folder for savepoints, `order`, `key`, `tag`, `row`, `sql`, `avro` or `reflect` (the state it has), the
 * schema of Avro, the types of the row (`long,string`; of SQL `BIGINT,STRING`) or nothing, then options of Flink as key=value. Needs flink-avro on the class path.
 */
public class ClassesJob {
  static class Keep extends KeyedProcessFunction<Object, Long, Long> {
    final String what;
    final String schema;
    transient ValueState<CLASS> order;
    transient MapState<shop.Tag, Long> tags;
    transient ValueState<GenericRecord> avro;
    transient ValueState<Row> row;
    transient ValueState<RowData> sql;
    transient ValueState<Long> count;

    Keep(String what, String schema) {
      this.what = what;
      this.schema = schema;
    }

    @Override
    public void open(org.apache.flink.api.common.functions.OpenContext c) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
      if (what.equals("order")) {
        order = getRuntimeContext().getState(new ValueStateDescriptor<>("order", CLASS.class));
      } else if (what.equals("reflect")) {
        order = getRuntimeContext().getState(new ValueStateDescriptor<>("avro", new AvroSerializer<>(CLASS.class)));
      } else if (what.equals("tag")) {
        tags = getRuntimeContext().getMapState(new MapStateDescriptor<>("tags", shop.Tag.class, Long.class));
      } else if (what.equals("row")) {
        row = getRuntimeContext().getState(new ValueStateDescriptor<>("row", Types.ROW(types(schema))));
      } else if (what.equals("sql")) {
        LogicalType[] types = Arrays.stream(schema.split(","))
            .map(name -> name.equals("BIGINT") ? new BigIntType() : new VarCharType(VarCharType.MAX_LENGTH))
            .toArray(LogicalType[]::new);
        sql = getRuntimeContext().getState(new ValueStateDescriptor<>("sql", InternalTypeInfo.ofFields(types)));
      } else if (what.equals("avro")) {
        avro = getRuntimeContext().getState(
            new ValueStateDescriptor<>("avro", new GenericRecordAvroTypeInfo(new Schema.Parser().parse(schema))));
      }
    }

    @Override
    public void processElement(Long x, Context c, Collector<Long> out) throws Exception {
      count.update(count.value() == null ? 1 : count.value() + 1);
      if (order != null) {
        CLASS one = order.value();
        order.update(one == null ? new CLASS() : one);
      } else if (tags != null) {
        tags.put(new shop.Tag(), x);
        for (Map.Entry<shop.Tag, Long> entry : tags.entries()) {
          entry.getValue();
        }
      } else if (row != null) {
        Row one = row.value();
        row.update(one == null ? new Row(schema.split(",").length) : one);
      } else if (sql != null) {
        RowData one = sql.value();
        sql.update(one == null ? new GenericRowData(schema.split(",").length) : one);
      } else if (avro != null) {
        GenericRecord one = avro.value();
        if (one == null) {
          Schema parsed = new Schema.Parser().parse(schema);
          one = new GenericData.Record(parsed);
          for (Schema.Field field : parsed.getFields()) {
            one.put(field.pos(), field.schema().getType() == Schema.Type.LONG ? (Object) x : (Object) "x");
          }
        }
        avro.update(one);
      }
      Touch.done.add(x % Touch.KEYS);
    }
  }

  static TypeInformation<?>[] types(String names) {
    return Arrays.stream(names.split(","))
        .map(name -> name.equals("long") ? Types.LONG : Types.STRING)
        .toArray(TypeInformation[]::new);
  }

  public static void main(String[] a) throws Exception {
    TypeInformation<?> key = a[1].equals("key") ? TypeInformation.of(shop.User.class) : Types.LONG;
    boolean byUser = a[1].equals("key");
    Touch.run(a, 3, x -> byUser ? new shop.User(x % Touch.KEYS) : (Object) (x % Touch.KEYS),
        (TypeInformation<Object>) key, new Keep(a[1], a[2]));
  }
}
