-- The same POST again and again; at the end, the figures as one line of JSON.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
if (os.getenv("BENCH_KEY") or "") ~= "" then
  wrk.headers["Authorization"] = "APPCODE " .. os.getenv("BENCH_KEY")
end
wrk.body = assert(io.open(os.getenv("BENCH_BODY"), "rb")):read("*a")

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests": %d, "us": %d, "p50_us": %d, "p99_us": %d, "failed": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
