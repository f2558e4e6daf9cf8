"""Reads the sink `clean-trips` as a stream and shows its ten busiest cells every ten seconds, until it is ended."""

from pyspark.sql import functions as f

from agiledart.spark import spark_session

spark = spark_session("busiest-cells", log_file="/tmp/spark.log")
trips = spark.readStream.format("agiledart").option("sink", "clean-trips").option("tokenFile", "/tokens/reader").load()
busiest = (
    trips.groupBy("start_cell")
    .agg(f.count("*").alias("trips"), (f.sum("total_cents") / 100).alias("dollars"))
    .orderBy(f.desc("trips"), "start_cell")
    .limit(10)
)
busiest.writeStream.outputMode("complete").format("console").trigger(
    processingTime="10 seconds"
).start().awaitTermination()
