// The answers: a card for each framework.
function showAnswers() {
  const wanted = state.framework === "all" ? Object.keys(FRAMEWORKS) : [state.framework];
  byId("asked").textContent = askedText();
  if (state.many) { showMany(wanted); return; }
  if (!state.capability || state.wrongDriver) {
    const text = state.capability ? "Give the whole driver version, or its branch." : "Give a GPU, or select a cell of the overview.";
    byId("answers").replaceChildren(make("p", { class: "empty", text }));
    byId("announce").textContent = "";
    return;
  }
  const answers = wanted.map((framework) => answerTo(state, framework));
  if (answers.includes(null)) { showMany(wanted); return; }
  byId("answers").replaceChildren(...answers.map(cardOf));
  byId("announce").textContent = answers.map((a) => `${FRAMEWORKS[a.framework]}: ${a.version || "no build fits"}`).join(". ");
}

// What the answers are for, in words.
function askedText() {
  if (!state.capability || state.wrongDriver) return "";
  const gpu = state.name || `${generations[state.capability]} ${state.capability}`;
  return [gpu, state.release ? `driver ${state.release}` : "any driver", systems[state.system].title].join(" · ");
}

function cardOf(answer) {
  const name = FRAMEWORKS[answer.framework];
  const card = make("article", { class: "card build", "data-framework": answer.framework });
  if (answer.version) {
    card.append(make("h3", { text: `${name} ${answer.version}` }), factsOf(answer));
  } else {
    card.append(make("h3", {}, name, make("span", { class: "mark fail", text: "no build fits" })));
  }
  for (const text of answer.notes) card.append(make("p", { class: "note", text }));
  if (answer.hint) card.append(make("p", { class: "helps" }, make("b", { text: "Would help: " }), answer.hint));
  card.append(whyOf(answer, name), ...commandsOf(answer));
  return card;
}

function factsOf(answer) {
  const rows = [
    ["CUDA", answer.cuda], ["cuDNN", answer.cudnn], ["Python", answer.python], ["From", INDEXES[answer.index]],
    ["Driver", answer.needs && `${answer.needs} or newer`],
  ].filter(([, value]) => value);
  return make("dl", { class: "facts" }, ...rows.map(([term, value]) =>
    make("div", {}, make("dt", { text: term }), make("dd", { text: value, "data-is": term.toLowerCase() }))));
}

function whyOf(answer, name) {
  const lines = make("ul", { class: "lines" }, ...answer.why.map((text) => make("li", { text })));
  if (!answer.why.length) return answer.version ? make("p", { class: "quiet", text: `This is the newest ${name} that gpuenv knows.` }) : null;
  if (answer.why.length <= 3) return make("div", {}, make("h4", { text: answer.version ? "Why nothing newer" : "Why" }), lines);
  const title = answer.version ? "Why nothing newer" : "Why";
  return make("details", {}, make("summary", { text: `${title} (${answer.why.length} reasons)` }), lines);
}

function commandsOf(answer) {
  const python = pythonWords(answer.version ? answer.python : state.python);
  const ask = ["gpuenv", "resolve", "--framework", answer.framework, ...targetWords(state), ...python];
  const asking = commandLine("The same answer on any machine", commandOf(ask));
  if (!answer.version) return [asking];
  const create = ["gpuenv", "create", "--framework", answer.framework, ...python];
  const where = `in an environment with Python ${answer.python}`;
  const [pip, uv, gap] = answer.commands;
  return [
    commandLine("Build it on that machine, and prove it", commandOf(create)),
    commandLine(`Or with pip, ${where}`, pip), commandLine(`Or with uv, ${where}`, uv),
    gap && make("p", { class: "gap", text: gap }), asking,
  ].filter(Boolean);
}

// Hosts with several models, and what the tables do not have: gpuenv answers.
function showMany(wanted) {
  const title = state.many && state.many.length ? "Several GPU models in one host" : "Ask gpuenv for this machine";
  const text = state.many && state.many.length
    ? "One build has to serve all of them. This page has answers for one model; gpuenv resolves all together."
    : "This page has no answer for this machine: its GPU, its glibc or the CUDA of its driver is not in the tables.";
  const commands = wanted.map((framework) => {
    const words = state.many && state.many.length ? manyWords() : ["--target", "machine.json"];
    return commandLine(FRAMEWORKS[framework], commandOf(["gpuenv", "resolve", "--framework", framework, ...words, ...pythonWords(state.python)]));
  });
  const file = state.many && state.many.length ? null : make("p", { class: "quiet", text: "machine.json is the output of gpuenv detect --json." });
  byId("answers").replaceChildren(make("article", { class: "card build" }, make("h3", { text: title }), make("p", { text }), file, ...commands));
  byId("announce").textContent = title;
}

function manyWords() {
  const [, , ...rest] = targetWords({ ...state, release: null, capability: "0", name: null });
  const driver = state.release ? ["--driver", state.release] : [];
  return [...driver, ...[...new Set(state.many)].flatMap((gpu) => ["--gpu", gpu]), ...rest];
}
