// What /console/metrics.json counts, as rates: they are made here, of two looks, so that the gateway remembers nothing.

export const EVERY_MS = 2000;

// The seconds of now and the totals since the gateway's start; nothing if it does not answer.
export const look = async () => {
  const reply = await fetch("/console/metrics.json", { headers: { "accept": "application/json" } }).catch(() => null);
  if (reply?.status === 401) location.assign("/console/sign-in");
  return reply?.ok ? [Date.now() / 1000, await reply.json()] : null;
};

export const percentile = (before, after, share) => {
  const bounds = Object.keys(after).sort((one, other) => parseFloat(one.replace("+Inf", "Infinity")) - parseFloat(other.replace("+Inf", "Infinity")));
  const counts = bounds.map((bound) => after[bound] - (before[bound] ?? 0));
  const total = counts[counts.length - 1] ?? 0;
  if (!total) return null;
  const place = counts.findIndex((count) => count >= total * share);
  return bounds[place] === "+Inf" ? null : parseFloat(bounds[place]) * 1000;
};

export const READINGS = {
  requests: (before, after, seconds) => (after.requests - before.requests) / seconds,
  errors: (before, after, seconds) => (after.errors - before.errors) / seconds,
  error_percent: (before, after) => {
    const requests = after.requests - before.requests;
    return requests ? (100 * (after.errors - before.errors)) / requests : null;
  },
  latency: (before, after) => percentile(before.buckets, after.buckets, 0.95),
};
