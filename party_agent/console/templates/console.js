"use strict";
// a decision is sent once, and the page says that it is under way
for (const form of document.querySelectorAll("form.decision")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
    if (event.submitter) { event.submitter.textContent = "Working …"; }
  });
}
