import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.flink.TableLoader;
import org.apache.iceberg.flink.sink.FlinkSink;
import org.apache.iceberg.flink.sink.IcebergSink;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.types.Types.LongType;
import org.apache.iceberg.types.Types.NestedField;

/**
 * Writes numbers into the Iceberg tables `old` (FlinkSink) and `new` (IcebergSink) below a folder, until it is killed;
 * its checkpoints are in `ck`. Made tests/data/flink/iceberg.tar.xz with Flink 1.20.3, iceberg-flink-runtime-1.20 and
 * hadoop-client-runtime.
 *
 * <p>Arguments: a folder, then options of Flink as key=value.
 */
public class IcebergJob {
  static TableLoader table(String path) {
    HadoopTables tables = new HadoopTables(new org.apache.hadoop.conf.Configuration());
    if (!tables.exists(path)) {
      tables.create(new Schema(NestedField.required(1, "id", LongType.get())), PartitionSpec.unpartitioned(), path);
    }
    return TableLoader.fromHadoopTable(path);
  }

  public static void main(String[] a) throws Exception {
    Configuration c = Local.options(a, 1);
    Local.keepCheckpoints(c, a[0] + "/ck", "1s", 1);
    c.setString("restart-strategy.type", "none");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(1, c);
    DataStream<RowData> rows =
        e.fromSequence(0, 99_999_999L).uid("numbers").map(new Touch.Slow()).returns(Types.LONG).uid("slow")
            .map(x -> (RowData) GenericRowData.of(x))
            .returns(InternalTypeInfo.ofFields(new BigIntType(false)))
            .uid("rows");
    FlinkSink.forRowData(rows).tableLoader(table(a[0] + "/old")).uidPrefix("old").append();
    IcebergSink.forRowData(rows).tableLoader(table(a[0] + "/new")).uidSuffix("new").append();
    e.execute("iceberg");
  }
}
