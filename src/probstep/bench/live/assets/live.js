"use strict";
// Asks every other second how the runs stand, and loads the report again when there is a new one.

const now = document.getElementById("now");
const lost = document.getElementById("lost");
const frame = document.querySelector("iframe");
let report = frame.dataset.version; // what is shown is this one or a newer one

async function look() {
  try {
    const answer = await fetch("/now");
    if (!answer.ok) throw new Error(answer.statusText);
    const text = await answer.text();
    if (text !== look.before) now.innerHTML = text; // escaped by the server; the policy bars scripts
    look.before = text;
    lost.hidden = true;
    renew(answer.headers.get("Probstep-Report"));
  } catch {
    lost.hidden = false;
  }
  setTimeout(look, 2000);
}

function renew(version) {
  if (version !== report) {
    const top = frame.contentWindow.scrollY;
    frame.addEventListener("load", () => frame.contentWindow.scrollTo(0, top), { once: true });
    frame.contentWindow.location.reload();
  }
  report = version;
}

look();
