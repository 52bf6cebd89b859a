// The view of the live panel. Python draws (the trait "html"); this changes only what differs, so that what the reader holds on to
// (a selection, the scroll position, the focus) stays. However many frames arrive, the screen is drawn once per animation frame.

// The display that Python holds is lost when the page is loaded again: pages have names, so that Python can tell.
const page = Math.random().toString(36).slice(2);

function same(from, to) {
  return from.nodeType === to.nodeType && from.nodeName === to.nodeName;
}

function morph(from, to) {
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.matches(".sb-page") && keep(from, to)) return;
  // The size of a canvas is set here; setting it would wipe it.
  const own = from.nodeName === "CANVAS" ? ["width", "height"] : ["aria-selected"];
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !own.includes(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  if (from.classList.contains("sb-age")) return;
  children(from, to);
}

// While the job moves, a page stays as it was when it last stood still, and says so: it does not go blank, and nothing in it acts.
function keep(page, next) {
  page.inert = "still" in next.dataset && !("still" in page.dataset);
  if (!page.inert) return false;
  if (!("kept" in page.dataset)) {
    page.dataset.kept = "";
    // The page's own note is about the state that it had then.
    page.querySelector(".sb-kept")?.remove();
    const note = document.createElement("div");
    note.className = "sb-kept";
    page.prepend(note);
  }
  const note = page.querySelector(".sb-kept");
  if (note.textContent !== next.dataset.still) note.textContent = next.dataset.still;
  return true;
}

function children(from, to) {
  const wanted = [...to.childNodes];
  wanted.forEach((node, at) => {
    const present = from.childNodes[at];
    if (!present) from.append(node);
    else if (same(present, node)) morph(present, node);
    else present.replaceWith(node);
  });
  while (from.childNodes.length > wanted.length) from.lastChild.remove();
}

// What is drawn on canvases: each gets a pen, its size in device pixels, its data, and the colours.
const drawings = {
  strip(pen, width, height, data, colours) {
    const tick = width / Number(data.room);
    const gap = tick >= 3 * devicePixelRatio ? devicePixelRatio : 0;
    // Each stream has a lane, in the order of the rows of the inputs: it can be told without its colour.
    const lanes = Number(data.lanes);
    const foot = Math.round(4 * devicePixelRatio);
    const room = height - foot;
    [...data.ticks].forEach((tickLane, at) => {
      const lane = parseInt(tickLane, 36);
      pen.fillStyle = pen.strokeStyle = colours.streams[lane % colours.streams.length];
      const left = Math.round(at * tick);
      const wide = Math.round((at + 1) * tick) - left - gap;
      const top = lanes > 1 ? Math.round((lane * room) / lanes) : 0;
      const tall = lanes > 1 ? Math.round(((lane + 1) * room) / lanes) - top : room;
      if (lanes > 1) {
        pen.globalAlpha = 0.16;
        pen.fillRect(left, 0, wide, room);
        pen.globalAlpha = 1;
      }
      // The last one is hollow while it is not processed.
      if ("held" in data && at === data.ticks.length - 1) {
        pen.lineWidth = 1.5 * devicePixelRatio;
        pen.strokeRect(left + pen.lineWidth / 2, top + pen.lineWidth / 2, Math.max(1, wide - pen.lineWidth), Math.max(1, tall - pen.lineWidth));
      } else pen.fillRect(left, top, wide, tall);
    });
    pen.fillStyle = colours.text;
    for (const at of data.commits ? data.commits.split(",") : []) {
      pen.fillRect(Math.round(at * tick), room, Math.max(tick - gap, 2 * devicePixelRatio), foot);
    }
    // What lies in the future of where it stands is pale, behind a line.
    if (data.at !== undefined) {
      const here = Math.max(0, Math.round((Number(data.at) + 1) * tick));
      pen.globalAlpha = 0.75;
      pen.fillStyle = colours.back;
      pen.fillRect(here, 0, Math.max(0, Math.round(data.ticks.length * tick) - here), height);
      pen.globalAlpha = 1;
      pen.fillStyle = colours.text;
      pen.fillRect(Math.max(0, here - devicePixelRatio), 0, 2 * devicePixelRatio, height);
    }
  },
  cells(pen, width, height, data, colours) {
    const all = [...data.levels];
    const rows = Math.ceil(all.length / width);
    if (rows > 1 && rows <= height) {
      // More partitions than fit side by side: rows of them, a pixel wide each, the paler the less of one is read.
      const tall = Math.floor(height / rows);
      pen.fillStyle = colours.streams[data.colour];
      all.forEach((level, at) => {
        pen.globalAlpha = level >= "0" && level <= "9" ? 0.3 + (0.7 * Number(level)) / 9 : 0.15;
        pen.fillRect(at % width, Math.floor(at / width) * tall, 1, tall);
      });
      pen.globalAlpha = 1;
      return;
    }
    for (let x = 0; x < Math.min(width, all.length); x++) {
      // More partitions than pixels: the worst of those that share one.
      const wide = Math.max(1, width / all.length);
      const share = all.slice(Math.floor((x * all.length) / Math.min(width, all.length)), Math.ceil(((x + 1) * all.length) / Math.min(width, all.length)));
      const worst = share.reduce((least, each) => (each < least ? each : least));
      const left = Math.floor(x * wide);
      const right = Math.ceil((x + 1) * wide) - (wide >= 4 ? 1 : 0);
      pen.globalAlpha = 0.18;
      pen.fillStyle = colours.streams[data.colour];
      pen.fillRect(left, 0, right - left, height);
      pen.globalAlpha = 1;
      if (worst >= "0" && worst <= "9") {
        const full = Math.round((height * Number(worst)) / 9);
        pen.fillRect(left, height - full, right - left, full);
      }
    }
  },
  spark(pen, width, height, data, colours) {
    const values = data.values.split(",").map(Number);
    const most = Math.max(...values, 1);
    pen.strokeStyle = colours.streams[data.colour];
    pen.lineWidth = devicePixelRatio * 1.25;
    pen.beginPath();
    // It grows from the left, next to its figure, and is pressed together once it is at the right.
    const step = width / Math.max(values.length - 1, 29);
    values.forEach((value, at) => pen.lineTo(at * step, height - 1 - (value / most) * (height - 2)));
    pen.stroke();
  },
};

function paint(canvas) {
  const width = Math.round(canvas.clientWidth * devicePixelRatio);
  const height = Math.round(canvas.clientHeight * devicePixelRatio);
  if (!width) return;
  const style = getComputedStyle(canvas);
  const colours = { text: style.color, back: style.getPropertyValue("--sb-bg"), streams: [...Array(8).keys()].map((at) => style.getPropertyValue(`--sb-s${at}`)) };
  const drawn = JSON.stringify([width, height, colours.text, { ...canvas.dataset }]);
  if (canvas.drawn === drawn) return;
  canvas.drawn = drawn;
  canvas.width = width;
  canvas.height = height;
  drawings[canvas.dataset.draw](canvas.getContext("2d"), width, height, canvas.dataset, colours);
}

// The position to which a key moves a job, while the strip has the focus; none for other keys.
function travelled({ goes, now, latest }, key) {
  const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[key];
  return by && Math.min(Math.max(Number(now) + by, Number(goes)), Number(latest));
}

// Which choice of the strip the pointer is at, counted from 0; none where there is no choice.
function choiceAt(canvas, event) {
  const at = Math.floor((event.offsetX / canvas.clientWidth) * Number(canvas.dataset.room));
  return at >= 0 && at < canvas.dataset.ticks.length ? at : undefined;
}

// The number of the first row of the inputs that is in sight, also where Python has left it out.
function rowInSight(box) {
  for (const row of box.querySelectorAll("tr[data-row]")) {
    const above = box.scrollTop - row.offsetTop;
    if (above < row.offsetHeight) {
      const first = Number(row.dataset.row);
      return row.dataset.rows ? first + Math.max(0, Math.floor((above / row.offsetHeight) * Number(row.dataset.rows))) : first;
    }
  }
  return 0;
}

// Where the widget is, its table is not to be seen.
function hideTable(id) {
  const style = document.createElement("style");
  style.textContent = `[data-panel="${id}"] { display: none; }`;
  document.head.append(style);
  return () => style.remove();
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "sb-root";
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "live panel; space steps or pauses, the arrows step and go back");
  // What Python draws, and next to it what only this page knows.
  const drawn = document.createElement("div");
  const tip = document.createElement("div");
  tip.className = "sb-tip";
  tip.hidden = true;
  root.append(drawn, tip);
  el.append(root);
  const showTable = hideTable(model.get("panel"));
  let arrived = performance.now();
  let due = 0;
  let gone = false;
  let tab = "";
  let typed = 0;
  let confirming = "";
  let unsure = 0;
  const view = Math.random().toString(36).slice(2); // one panel may be shown in several places
  let inSight = 0;
  let scrolled = 0;
  let scrubbed; // the choice at which the strip is held
  let held = false;
  let loose; // where the strip was let loose
  let asked; // the position that was asked for last,
  let going; // and the same until a picture of it comes
  let patience = 0;

  function draw() {
    due = 0;
    const template = document.createElement("template");
    template.innerHTML = model.get("html");
    children(drawn, template.content);
    if (scrubbed !== undefined) mark(scrubbed);
    if (gone) grey();
    pick();
    label();
    look();
    age();
  }

  function look() {
    for (const canvas of root.querySelectorAll("canvas")) paint(canvas);
  }

  // The page of the lower half that is shown: picked here, without the kernel.
  function pick() {
    const tabs = [...root.querySelectorAll("[data-tab]")];
    const shown = tabs.some((each) => each.dataset.tab === tab) ? tab : tabs[0]?.dataset.tab;
    for (const each of tabs) each.setAttribute("aria-selected", String(each.dataset.tab === shown));
    for (const each of root.querySelectorAll("[data-page]")) each.classList.toggle("sb-shown", each.dataset.page === shown);
  }

  // A button that needs a second click says so after the first one, for a while.
  function label() {
    for (const each of root.querySelectorAll("[data-confirm]")) {
      const text = each.dataset.do === confirming ? each.dataset.confirm : each.dataset.label;
      if (each.textContent !== text) each.textContent = text;
      each.classList.toggle("sb-unsure", each.dataset.do === confirming);
    }
  }

  function ask(control) {
    clearTimeout(unsure);
    confirming = control.dataset.do;
    unsure = setTimeout(() => ((confirming = ""), label()), 4000);
    label();
  }

  // The widget manager tells its models when their kernel has ended. Nothing draws them any more, and no button acts.
  async function connection() {
    const own = await model.widget_manager?.get_model(model.get("panel"));
    gone = !own?.comm_live;
    draw();
  }

  function grey() {
    const panel = root.querySelector(".sb-panel");
    if (!panel) return;
    panel.dataset.state = "gone";
    for (const control of panel.querySelectorAll("button[data-do], input, select")) control.disabled = true;
    panel.querySelector(".sb-pill").textContent = "kernel ended";
    panel.querySelector(".sb-why-still").textContent = "as it was before its kernel ended";
  }

  function frame() {
    arrived = performance.now();
    if (going !== undefined) arrive();
    if (!due) due = requestAnimationFrame(draw);
  }

  function since(ms) {
    const seconds = Math.max(0, (Date.now() - ms) / 1000);
    return seconds < 90 ? `${Math.floor(seconds)} s ago` : seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
  }

  // How old the picture is, and whether it can be trusted.
  function age() {
    for (const each of root.querySelectorAll("time")) each.textContent = since(Number(each.dataset.at));
    const shown = root.querySelector(".sb-age");
    if (!shown) return;
    if (gone) {
      shown.textContent = "nothing draws it any more: run the cells of the job again";
      shown.classList.add("sb-late");
      return;
    }
    const seconds = (performance.now() - arrived) / 1000;
    const running = root.querySelector('.sb-panel[data-state="running"]');
    const old = seconds < 1 ? "just now" : seconds < 90 ? `${Math.round(seconds)} s ago` : `${Math.round(seconds / 60)} min ago`;
    const behind = shown.dataset.behind || (running && seconds > 3);
    const text = shown.dataset.behind
      ? "busy with one message: the picture is from before it"
      : behind ? `no news for ${Math.round(seconds)} s: the picture may be old` : `drawn ${old} · complete`;
    if (shown.textContent !== text) shown.textContent = text;
    shown.classList.toggle("sb-late", Boolean(behind));
  }

  function act(event) {
    const picked = event.target.closest("[data-tab]");
    if (picked) {
      tab = picked.dataset.tab;
      pick();
      look();
      return;
    }
    const control = event.target.closest("[data-do]");
    if (!control || control.disabled || gone) return;
    if (control.dataset.confirm && confirming !== control.dataset.do) return ask(control);
    confirming = "";
    model.send({ do: control.dataset.do });
  }

  // The choice under the pointer, in words.
  function hint(event) {
    const canvas = event.target.closest?.("canvas[data-titles]");
    const at = canvas ? choiceAt(canvas, event) : undefined;
    // The browser reports a pointer that rests, too, when what is below it has changed.
    const rests = loose && loose.x === event.clientX && loose.y === event.clientY;
    tip.hidden = at === undefined || rests;
    if (tip.hidden) return;
    loose = undefined;
    const [, number, said] = canvas.dataset.titles.split("\n")[at].match(/^([\d,]+): (.*)$/);
    const name = document.createElement("b");
    name.textContent = number;
    const action = "goes" in canvas.dataset && scrubbed === undefined ? "\nclick or drag: go there" : "";
    tip.replaceChildren(name, ` ${said}${action}`);
    const [box, strip] = [root.getBoundingClientRect(), canvas.getBoundingClientRect()];
    const left = event.clientX - box.left - tip.offsetWidth / 2;
    tip.style.left = `${Math.max(4, Math.min(left, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${strip.bottom - box.top + 6}px`;
  }

  function mark(at) {
    const canvas = root.querySelector("canvas[data-goes]");
    if (!canvas) return;
    canvas.dataset.at = at;
    paint(canvas);
  }

  // The job follows the pointer: one position is asked for at a time, the next one when its picture has come.
  function go() {
    const canvas = root.querySelector("canvas[data-goes]");
    if (!canvas || scrubbed === undefined) return;
    const { goes, first, latest } = canvas.dataset;
    const position = Math.min(Math.max(Number(goes), Number(first) + scrubbed), Number(latest));
    if (position !== asked) travel(position);
  }

  function travel(position) {
    if (going !== undefined) return;
    going = asked = position;
    patience = setTimeout(arrive, 2000);
    model.send({ do: `goto ${position}` });
  }

  function arrive() {
    clearTimeout(patience);
    going = undefined;
    go();
    if (!held) scrubbed = undefined;
  }

  function scrub(event) {
    const canvas = event.target.closest("canvas[data-goes]");
    if (event.type === "pointerdown" && canvas && !gone && event.button === 0) {
      held = true;
      asked = undefined;
      canvas.setPointerCapture(event.pointerId);
    }
    if (!held) return;
    // It may be let loose where the strip is not, or goes nowhere: the job runs by now.
    if (!(event.buttons & 1)) {
      held = false;
      loose = { x: event.clientX, y: event.clientY };
      tip.hidden = true;
    }
    const at = canvas ? choiceAt(canvas, event) : undefined;
    if (at !== undefined && (held || event.type === "pointerup")) mark((scrubbed = at));
    go();
    if (!held && going === undefined) scrubbed = undefined;
  }

  // Of many rows Python draws those in sight: it is told where that is.
  function scroll(event) {
    const box = event.target;
    if (gone || scrolled || !box.matches?.(".sb-rows")) return;
    scrolled = requestAnimationFrame(() => {
      scrolled = 0;
      if (!box.querySelector("[data-height]") && !inSight) return;
      const first = rowInSight(box);
      if (Math.abs(first - inSight) < 10) return;
      inSight = first;
      model.send({ do: `row ${first} ${view}` });
    });
  }

  function search(event) {
    if (!event.target.matches(".sb-search")) return;
    clearTimeout(typed);
    typed = setTimeout(() => model.send({ do: `search ${event.target.value}` }), 250);
  }

  // Keys while the panel has the focus: space steps, or pauses what runs; the arrows step back and forward. On the strip, a
  // slider, they move in the past only. They are taken before JupyterLab gets them, which listens at the document.
  function keys(event) {
    if (!root.contains(document.activeElement) || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (document.activeElement !== root && document.activeElement.closest("input, textarea, select, a")) return;
    if (event.key === " " && document.activeElement.closest("button")) return;
    const strip = document.activeElement.closest("canvas[data-goes]");
    const position = strip ? travelled(strip.dataset, event.key) : undefined;
    if (position !== undefined) {
      event.preventDefault();
      event.stopImmediatePropagation();
      if (!gone && position !== Number(strip.dataset.now)) travel(position);
      return;
    }
    const wanted = { " ": ["step", "pause"], ArrowRight: ["step"], ArrowLeft: ["back"] }[event.key];
    if (!wanted) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const button = wanted.map((each) => root.querySelector(`button[data-do="${each}"]:enabled`)).find(Boolean);
    if (button && !gone) model.send({ do: button.dataset.do });
  }

  function key(event) {
    if (event.target.matches(".sb-ask")) {
      // JupyterLab must not take what is typed for its shortcuts.
      event.stopPropagation();
      const value = event.target.value.trim();
      if (event.key !== "Enter" || !value || gone) return;
      const kind = event.target.parentNode.querySelector(".sb-kind");
      model.send({ do: [event.target.dataset.ask, ...(kind ? [kind.value] : []), value].join(" ") });
      event.target.value = "";
      return;
    }
    if ((event.key === "Enter" || event.key === " ") && event.target.matches("a[data-do]")) {
      event.preventDefault();
      act(event);
    }
  }

  model.on("change:html", frame);
  model.on("comm_live_update", connection);
  root.addEventListener("click", act);
  root.tabIndex = 0;
  window.addEventListener("keydown", keys, true);
  root.addEventListener("keydown", key);
  root.addEventListener("mousemove", hint);
  root.addEventListener("input", search);
  root.addEventListener("scroll", scroll, true);
  root.addEventListener("mouseleave", () => (tip.hidden = true));
  for (const each of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) root.addEventListener(each, scrub);
  const sizes = new ResizeObserver(look);
  sizes.observe(root);
  const clock = setInterval(() => (look(), age()), 500);
  draw();
  model.send({ do: `page ${page}` });
  model.send({ do: `row 0 ${view}` });
  return () => {
    clearInterval(clock);
    sizes.disconnect();
    window.removeEventListener("keydown", keys, true);
    model.off("comm_live_update", connection);
    showTable();
    if (due) cancelAnimationFrame(due);
    if (scrolled) cancelAnimationFrame(scrolled);
    model.off("change:html", frame);
  };
}

export default { render };
