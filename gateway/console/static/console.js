// What every page does beyond links and forms: asks before it destroys, copies, and shows what a slider says.

const question = document.getElementById("question");

document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button?.dataset.confirm || button.dataset.confirmed) return;
  event.preventDefault();
  document.getElementById("question-text").textContent = button.dataset.confirm;
  question.returnValue = "";
  question.addEventListener("close", () => {
    if (question.returnValue !== "yes") return;
    button.dataset.confirmed = "yes";
    button.form.requestSubmit(button);
  }, { once: true });
  question.showModal();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const label = button.textContent;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "✓";
  setTimeout(() => { button.textContent = label; }, 1200);
});

document.addEventListener("input", (event) => {
  const shows = event.target.dataset.shows;
  if (shows) document.getElementById(shows).textContent = `${event.target.value} %`;
});

for (const field of document.querySelectorAll("[data-here]")) field.value = location.pathname;

// A list that is renewed under somebody who has ticked rows in it would untick them.
for (const moment of ["htmx:beforeRequest", "htmx:beforeSwap"]) {
  document.addEventListener(moment, (event) => {
    if (event.target.id === "live" && event.target.querySelector(":checked, details[open]")) event.preventDefault();
  });
}
