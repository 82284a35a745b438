// Speaks ACP on stdio and has every session run by acpx, the headless ACP client: `acpx-bridge COMMAND...`.
//
// acpx is itself a client, so somebody must be its user: session/new becomes `acpx sessions new`, session/prompt becomes
// `acpx prompt`, and what acpx reports of the agent's traffic (one JSON-RPC message a line) is passed on as it arrives.
// The agent inside is the same as without acpx: same command, home and environment; acpx lends it no files or terminals.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PROTOCOL_VERSION = 1;
const KEPT_ERROR_CHARACTERS = 4000;
const PACKAGE = join(dirname(fileURLToPath(import.meta.url)), "node_modules", "acpx");
const VERSION = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")).version;
const AGENT = process.argv.slice(2).map(quote).join(" ");

const sessions = new Map(); // session id -> { cwd, flags }

function quote(word) {
  return /^[\w./:@=+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

function send(message) {
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
}

class Failure extends Error {
  constructor(message, code = -32603, data = undefined) {
    super(message);
    this.reply = { code, message, ...(data === undefined ? {} : { data }) };
  }
}

// Runs acpx for one session; `onMessage` gets each JSON line of its output. Rejects when acpx fails.
function acpx(session, words, { input = "", onMessage = () => {} } = {}) {
  const flags = ["--agent", AGENT, "--cwd", session.cwd, "--format", "json", "--json-strict", "--approve-all"];
  flags.push("--no-fs", "--no-terminal", "--auth-policy", "skip", ...session.flags);
  const child = spawn(process.execPath, [join(PACKAGE, "dist", "cli.js"), ...flags, ...words], { cwd: session.cwd });
  let errors = "";
  let failure;
  child.stderr.on("data", (chunk) => (errors = (errors + chunk).slice(-KEPT_ERROR_CHARACTERS)));
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  createInterface({ input: child.stdout }).on("line", (line) => {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      errors = (errors + line + "\n").slice(-KEPT_ERROR_CHARACTERS);
      return;
    }
    if (message.error) failure = message.error;
    onMessage(message);
  });
  return new Promise((resolve, reject) => {
    child.on("error", (error) => reject(new Failure(`acpx could not be started: ${error.message}`)));
    child.on("close", (code) => {
      if (code === 0) resolve();
      else if (failure) reject(new Failure(failure.message, failure.code, failure.data));
      else reject(new Failure(`acpx exited with ${code}: ${errors.trim()}`));
    });
  });
}

function sessionOf(params) {
  const session = sessions.get(params.sessionId);
  if (!session) throw new Failure(`no session ${params.sessionId}`, -32602);
  return session;
}

async function newSession({ cwd, mcpServers = [] }) {
  const sessionId = randomUUID();
  const session = { cwd, flags: [] };
  if (mcpServers.length > 0) {
    const path = join(mkdtempSync(join(tmpdir(), "acpx-")), "mcp.json");
    writeFileSync(path, JSON.stringify({ mcpServers }), { mode: 0o600 });
    session.flags.push("--mcp-config", path);
  }
  await acpx(session, ["sessions", "new", "--name", sessionId]);
  sessions.set(sessionId, session);
  return { sessionId };
}

async function prompt(params) {
  const session = sessionOf(params);
  let promptId; // what comes before the prompt is acpx reconnecting, not part of this turn
  let result;
  const onMessage = (message) => {
    if (message.method === "session/prompt") promptId = message.id;
    else if (promptId === undefined) return;
    else if (message.method === "session/update") send({ ...message, params: { ...message.params, sessionId: params.sessionId } });
    else if (message.id === promptId && message.result) result = message.result;
  };
  const text = params.prompt.map((block) => block.text ?? block.resource?.text ?? block.uri ?? "").join("\n");
  await acpx(session, ["prompt", "-s", params.sessionId, "-f", "-"], { input: text, onMessage });
  if (!result) throw new Failure("acpx ended without the agent's answer");
  return result;
}

const METHODS = {
  initialize: async () => ({
    protocolVersion: PROTOCOL_VERSION,
    agentCapabilities: { loadSession: false, mcpCapabilities: { http: true, sse: true } },
    agentInfo: { name: "acpx", version: VERSION },
    authMethods: [],
  }),
  "session/new": newSession,
  "session/prompt": prompt,
  "session/cancel": async (params) => acpx(sessionOf(params), ["cancel", "-s", params.sessionId]),
};

async function answer({ id, method, params = {} }) {
  try {
    if (!METHODS[method]) throw new Failure(`acpx-bridge does not know ${method}`, -32601);
    const result = await METHODS[method](params);
    if (id !== undefined) send({ id, result: result ?? {} });
  } catch (error) {
    const reply = error instanceof Failure ? error.reply : { code: -32603, message: String(error) };
    if (id !== undefined) send({ id, error: reply });
    else process.stderr.write(`${method}: ${reply.message}\n`);
  }
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    if (line.trim()) answer(JSON.parse(line));
  })
  .on("close", async () => {
    await Promise.allSettled([...sessions].map(([id, session]) => acpx(session, ["sessions", "close", id])));
    process.exit(0);
  });
