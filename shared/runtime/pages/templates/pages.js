"use strict";
// a decision is sent once, and the page says that it is under way
for (const form of document.querySelectorAll("form.decision")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
    if (event.submitter) { event.submitter.textContent = "Working …"; }
  });
}

// the label is no feature of itself
for (const label of document.querySelectorAll("select[data-excludes]")) {
  const exclude = () => {
    for (const box of label.form.querySelectorAll(`input[name=${label.dataset.excludes}]`)) { box.disabled = box.value === label.value; }
  };
  label.addEventListener("change", exclude);
  exclude();
}

// a level belongs to one attribute
for (const attribute of document.querySelectorAll("select[data-resets]")) {
  attribute.addEventListener("change", () => { attribute.form.elements[attribute.dataset.resets].value = ""; });
}

// what goes on is shown as it goes on: the same page is asked for again, and only what changed is replaced
const live = document.querySelector("[data-live]");
const stale = document.querySelector("[data-stale]");
async function look() {
  if (document.hidden) { return; }
  let fresh = null;
  try {
    const answer = await fetch(location.href, { redirect: "error", signal: AbortSignal.timeout(10000) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    fresh = answer.ok ? page.querySelector("[data-live]") : null;
  } catch { /* said below */ }
  stale.hidden = fresh !== null;
  if (fresh && fresh.innerHTML !== live.innerHTML) { live.replaceChildren(...document.adoptNode(fresh).childNodes); }
}
if (live) { setInterval(look, Number(live.dataset.live)); }
