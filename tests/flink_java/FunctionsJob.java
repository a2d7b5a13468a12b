import java.util.Properties;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.StreamingFileSink;
import org.apache.flink.streaming.connectors.kafka.*;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A job of Flink 1 with sources and sinks of the old kind (`SourceFunction`, `SinkFunction`): it reads the topic `orders`
 * of Kafka, and writes the records into the topic `out` and into files. Its operators have the uids of KafkaJob.
 *
 * <p>Arguments: the broker, a folder for checkpoints and files, milliseconds that a record takes, then options of Flink
 * as key=value.
 */
public class FunctionsJob {
  static class Slow implements MapFunction<String, String> {
    final long millis;

    Slow(long millis) {
      this.millis = millis;
    }

    @Override
    public String map(String record) throws Exception {
      Thread.sleep(millis);
      System.out.println("RECORD " + record);
      return record;
    }
  }

  public static void main(String[] a) throws Exception {
    Configuration c = new Configuration();
    for (int i = 3; i < a.length; i++) {
      String[] kv = a[i].split("=", 2);
      c.setString(kv[0], kv[1]);
    }
    c.setString("execution.checkpointing.dir", "file://" + a[1] + "/ck");
    c.setString("execution.checkpointing.interval", "400ms");
    c.setString("execution.checkpointing.num-retained", "3");
    c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    c.setString("restart-strategy.type", "none");
    c.setString("rest.port", "0");
    c.setString("rest.bind-address", "127.0.0.1");
    c.setString("rest.address", "127.0.0.1");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    Properties p = new Properties();
    p.setProperty("bootstrap.servers", a[0]);
    p.setProperty("group.id", "abs");
    FlinkKafkaConsumer<String> source = new FlinkKafkaConsumer<>("orders", new SimpleStringSchema(), p);
    source.setStartFromEarliest();
    Properties q = new Properties();
    q.setProperty("bootstrap.servers", a[0]);
    q.setProperty("transaction.timeout.ms", "600000");
    KafkaSerializationSchema<String> out = (record, at) -> new ProducerRecord<>("out", record.getBytes());
    FlinkKafkaProducer<String> topic =
        new FlinkKafkaProducer<>("out", out, q, FlinkKafkaProducer.Semantic.EXACTLY_ONCE);
    StreamingFileSink<String> files =
        StreamingFileSink.forRowFormat(new Path("file://" + a[1] + "/files"), new SimpleStringEncoder<String>("UTF-8"))
            .build();
    DataStream<String> records = e.addSource(source).uid("orders").map(new Slow(Long.parseLong(a[2]))).uid("slow");
    records.addSink(topic).uid("topic");
    records.addSink(files).uid("files");
    e.execute("functions");
  }
}
