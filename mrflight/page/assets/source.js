// Where the data comes from: a stream of the server, or the report that this page is part of.
// The token stays out of the address bar, the history and cookies, and goes into a header.

const TOKEN = "mrflight-token";
const RETRY_MS = 2000;

function takeToken() {
  const given = decodeURIComponent(location.hash.slice(1));
  if (given) {
    sessionStorage.setItem(TOKEN, given);
    history.replaceState(null, "", location.pathname);
  }
  return given || sessionStorage.getItem(TOKEN) || "";
}

// Asks for the token until one is entered.
function askForToken() {
  const form = byId("unlock");
  form.hidden = false;
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      form.hidden = true;
      sessionStorage.setItem(TOKEN, byId("token").value.trim());
      resolve();
    };
  });
}

// Calls `take(kind, data)` for each message of a stream of server-sent events.
async function readStream(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const messages = text.split("\n\n");
    text = messages.pop();
    for (const message of messages) {
      const [first, second] = message.split("\n");
      if (second !== undefined) take(first.slice("event: ".length), JSON.parse(second.slice("data: ".length)));
    }
  }
}

async function follow(take, tell) {
  for (;;) {
    let isEnded = false;
    try {
      const answer = await fetch("events", { headers: { Authorization: `Bearer ${takeToken()}` } });
      if (answer.status === 401) {
        tell("locked");
        await askForToken();
        continue;
      }
      if (answer.ok) {
        tell("live");
        await readStream(answer.body, (kind, data) => {
          isEnded = kind === "end" || isEnded;
          take(kind, data);
        });
      }
    } catch (error) {
      console.info("the stream ended:", error.message);
    }
    if (isEnded) return;
    tell("gone");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function receive(take, tell) {
  const report = byId("report");
  if (report === null) return follow(take, tell);
  const data = JSON.parse(report.textContent);
  take("attempts", data.attempts);
  for (const [name, part] of Object.entries(data.parts)) take(name, part);
  take("state", data.state);
  return Promise.resolve();
}
