// Finds the answers that the script computed. No rule is decided here: versions are compared to find an interval.
const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (letter) => letter.charCodeAt(0));
const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
const FRAMEWORKS = { torch: "PyTorch", tensorflow: "TensorFlow", jax: "JAX", onnxruntime: "ONNX Runtime" };
const INDEXES = { pypi: "default index", pytorch: "PyTorch index" };
const systems = Object.fromEntries(data.systems.map((s) => [s.key, s]));
const boards = data.gpus.flatMap(([capability, generation, tegra, names]) =>
  names.map((name) => ({ name, capability, generation, tegra })));
const generations = Object.fromEntries(data.gpus.map(([capability, generation]) => [capability, generation]));

function compare(one, other) {
  const a = one.split(".").map(Number), b = other.split(".").map(Number);
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const difference = (a[i] || 0) - (b[i] || 0);
    if (difference) return Math.sign(difference);
  }
  return 0;
}

// A branch ("580") or shortened release ("580.65") is the first release of it, as for gpuenv resolve --driver.
function releaseOf(system, driver) {
  const releases = data.releases[system.driver_os];
  if (driver === null || driver.split(".").length > 2 || releases.includes(driver)) return driver;
  return releases.find((release) => release.startsWith(`${driver}.`)) || driver;
}

// The places of a question in the tables: null where the page has no answer for it.
function intervalOf(system, driver) {
  return driver === null ? 0 : 1 + system.floors.filter((floor) => compare(floor, driver) <= 0).length;
}

function glibcOf(system, glibc) {
  if (system.glibc[0] === null) return 0;
  const place = system.glibc.findIndex((floor) => compare(floor, glibc) <= 0);
  return place < 0 ? null : place;
}

function answerTo(question, framework) {
  const system = systems[question.system], table = data.tables[question.system][framework];
  const column = system.capabilities.indexOf(question.capability);
  const glibc = glibcOf(system, question.glibc);
  const python = data.pythons.indexOf(question.python);
  if (column < 0 || glibc === null || python < 0) return null;
  const one = table.rows[table.pairs[intervalOf(system, question.release)]][column];
  const [head, why, notes, hint] = data.answers[data.lines[table.classes[one][glibc]][python]];
  const [version, cuda, index, cudnn, chosen, ...commands] = data.heads[head];
  const say = (number) => sayText(data.texts[number], question);
  return {
    framework, version, cuda, index, cudnn, python: chosen, needs: cuda && system.needs[cuda],
    why: why.map(say), notes: notes.map(say), hint: hint < 0 ? null : say(hint),
    commands: commands.map((number) => data.texts[number]),
  };
}

function sayText(text, question) {
  const system = systems[question.system];
  const gpu = question.name ? `${question.name} (${question.capability})` : `a GPU of capability ${question.capability}`;
  const given = {
    gpu, driver: question.release, speaks: system.speaks[intervalOf(system, question.release)],
    glibc: question.glibc, python: question.python,
  };
  return text.replace(/\{(gpu|driver|speaks|glibc|python)\}/g, (_, name) => given[name]);
}

// Commands, as a shell of the system reads them.
function quoted(word, windows) {
  if (/^[\w.,:=+/-]+$/.test(word)) return word;
  return windows ? `"${word.replaceAll('"', "")}"` : `'${word.replaceAll("'", "'\\''")}'`;
}

function commandOf(words) {
  const windows = state.system === "windows";
  return words.map((word) => quoted(word, windows)).join(" ");
}

// A board that gpuenv knows by its name, any other by its capability.
function gpuWord({ name, capability }) {
  return boards.some((b) => b.name === name) ? name : capability;
}

function targetWords(question) {
  const system = systems[question.system];
  const words = [];
  if (question.release) words.push("--driver", question.release);
  words.push("--gpu", gpuWord(question), "--platform", system.platform);
  if (question.system === "wsl") words.push("--driver-os", "windows");
  if (system.glibc[0] !== null) words.push("--glibc", question.glibc);
  return words;
}

function pythonWords(python) {
  return python ? ["--python", python] : [];
}
