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
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  if (from.classList.contains("sb-age")) return;
  children(from, to);
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

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "sb-root";
  el.append(root);
  let arrived = performance.now();
  let due = 0;

  function draw() {
    due = 0;
    const template = document.createElement("template");
    template.innerHTML = model.get("html");
    children(root, template.content);
    age();
  }

  function frame() {
    arrived = performance.now();
    if (!due) due = requestAnimationFrame(draw);
  }

  // How old the picture is, and whether it can be trusted.
  function age() {
    const shown = root.querySelector(".sb-age");
    if (!shown) return;
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
    const control = event.target.closest("[data-do]");
    if (control && !control.disabled) model.send({ do: control.dataset.do });
  }

  function key(event) {
    if ((event.key === "Enter" || event.key === " ") && event.target.matches("a[data-do]")) {
      event.preventDefault();
      act(event);
    }
  }

  model.on("change:html", frame);
  root.addEventListener("click", act);
  root.addEventListener("keydown", key);
  const clock = setInterval(age, 500);
  draw();
  model.send({ do: `page ${page}` });
  return () => {
    clearInterval(clock);
    if (due) cancelAnimationFrame(due);
    model.off("change:html", frame);
  };
}

export default { render };
