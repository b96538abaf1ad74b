// Server-sent events of a response, one text each, as they come.

export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const lines = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
