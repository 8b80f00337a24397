// Whether the daemon answers. Without this a page of a daemon that is gone looks as if nothing had happened.
"use strict";

{
  const EVERY_MS = 5_000;
  const WAIT_MS = 10_000; // so that no answer for 15 s is shown
  const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const banner = document.getElementById("dead");
  let answeredAt = new Date();
  let asking = false;
  let leaving = false;

  function show(problem) {
    document.documentElement.classList.toggle("is-dead", problem !== "");
    const text = problem && `No answer from rebalancer since ${CLOCK.format(answeredAt)}: ${problem}. This page shows how things were then.`;
    if (banner.textContent !== text) banner.textContent = text;
  }

  // An answer below 500 comes from the daemon, or from a proxy that wants credentials: neither says that it is gone.
  async function ask() {
    if (document.hidden || asking) return;
    asking = true;
    const patience = new AbortController();
    const end = setTimeout(() => patience.abort(), WAIT_MS);
    try {
      const answer = await fetch("/livez", { cache: "no-store", redirect: "manual", signal: patience.signal });
      if (answer.status >= 500) {
        show(`HTTP ${answer.status}`);
      } else {
        answeredAt = new Date();
        show("");
      }
    } catch {
      // a page that is being left ends its requests
      if (!leaving) show(patience.signal.aborted ? "it does not answer" : "it can't be reached");
    } finally {
      clearTimeout(end);
      asking = false;
    }
  }

  addEventListener("pagehide", () => { leaving = true; });
  addEventListener("pageshow", () => { leaving = false; });
  document.addEventListener("visibilitychange", ask);
  setInterval(ask, EVERY_MS);
}
