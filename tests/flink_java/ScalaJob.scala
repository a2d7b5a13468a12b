import java.util.Collections
import java.util.concurrent.ConcurrentHashMap
import org.apache.flink.api.common.state.{ValueState, ValueStateDescriptor}
import org.apache.flink.configuration.Configuration
import org.apache.flink.core.execution.SavepointFormatType
import org.apache.flink.streaming.api.functions.KeyedProcessFunction
import org.apache.flink.streaming.api.scala._
import org.apache.flink.util.Collector
import scala.util.{Failure, Success, Try}

object Level extends Enumeration {
  val Low = Value(1, "low")
  val High = Value(4, "high")
}

case class Address(street: String, zip: Int)
case class Order(
    id: Long,
    address: Address,
    note: Option[String],
    items: Seq[(String, Int)],
    tags: Map[String, Long],
    marks: Set[Int],
    either: Either[Long, String],
    level: Level.Value,
    last: Vector[Double],
    array: Array[Long])

/** Makes the snapshots of Flink 1.20's Scala API in tests/data/flink/values.tar.xz. What each key holds follows from its
  * number (tests/flink/state/test_schemas.py). Compiled with Scala 2.12.20 and flink-streaming-scala_2.12.
  *
  * Arguments: an empty directory, then options of Flink as key=value.
  */
object ScalaJob {
  val Keys = 6
  val done: java.util.Set[String] = Collections.newSetFromMap(new ConcurrentHashMap[String, java.lang.Boolean]())

  def order(k: Int): Order = Order(
    k - 3L,
    Address("street " + k, 1000 + k),
    if (k % 3 == 0) None else Some("café " + k),
    (0 until k).map(i => ("item-" + i, i)),
    if (k == 0) Map.empty else Map("t" + k -> k.toLong),
    (0 until k).toSet,
    if (k % 2 == 0) Left(k.toLong) else Right("text " + k),
    if (k % 2 == 0) Level.Low else Level.High,
    Vector.fill(k)(k / 2.0),
    Array.fill(k)(k.toLong))

  class Keep extends KeyedProcessFunction[(String, Int), Long, Long] {
    @transient var order: ValueState[Order] = _
    @transient var option: ValueState[Option[Address]] = _
    @transient var attempt: ValueState[Try[Int]] = _
    @transient var behind: ValueState[Long] = _

    override def open(c: Configuration): Unit = {
      val r = getRuntimeContext
      order = r.getState(new ValueStateDescriptor("order", createTypeInformation[Order]))
      option = r.getState(new ValueStateDescriptor("option", createTypeInformation[Option[Address]]))
      attempt = r.getState(new ValueStateDescriptor("attempt", createTypeInformation[Try[Int]]))
      behind = r.getState(new ValueStateDescriptor("behind", createTypeInformation[Long]))
    }

    override def processElement(
        x: Long, c: KeyedProcessFunction[(String, Int), Long, Long]#Context, out: Collector[Long]): Unit = {
      val k = (x % Keys).toInt
      order.update(ScalaJob.order(k))
      option.update(if (k % 2 == 0) None else Some(Address("only", k)))
      attempt.update(Success(k))
      behind.update(k)
      done.add(k.toString)
    }
  }

  def main(a: Array[String]): Unit = {
    val dir = a(0)
    val c = new Configuration()
    a.drop(1).foreach { word =>
      val Array(key, value) = word.split("=", 2)
      c.setString(key, value)
    }
    c.setString("execution.checkpointing.dir", "file://" + dir + "/ck")
    c.setString("state.checkpoints.dir", "file://" + dir + "/ck")
    c.setString("execution.checkpointing.interval", "300ms")
    c.setString("execution.checkpointing.num-retained", "1")
    c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION")
    c.setString("execution.checkpointing.storage", "filesystem")
    c.setString("execution.checkpointing.data-inline-threshold", "200b")
    c.setString("rest.port", "0")
    c.setString("rest.bind-address", "127.0.0.1")
    c.setString("rest.address", "127.0.0.1")
    val e = StreamExecutionEnvironment.createLocalEnvironment(2, c)
    e.setMaxParallelism(8)
    e.fromSequence(0, 99999999L)
      .uid("numbers")
      .map { x => Thread.sleep(30); x }
      .keyBy(x => ("key", (x % Keys).toInt))
      .process(new Keep())
      .uid("keep")
      .print()
    val j = e.executeAsync("scala")
    while (done.size() < Keys) Thread.sleep(50)
    Thread.sleep(1500)
    println("SAVEPOINT " + j.triggerSavepoint("file://" + dir + "/sp", SavepointFormatType.CANONICAL).get())
    j.cancel().get()
    Thread.sleep(300)
    System.exit(0)
  }
}
