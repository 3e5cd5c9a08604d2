// Says above what scrolls sideways that there is more, and on which side.
(() => {
  const say = (box) => {
    const hidden = box.scrollWidth - box.clientWidth;
    if (hidden < 8) delete box.dataset.more;
    else box.dataset.more = box.scrollLeft < hidden - 8 ? "scroll sideways: more on the right →" : "← more on the left";
  };
  const resized = new ResizeObserver((all) => all.forEach((one) => say(one.target)));
  for (const box of document.querySelectorAll(".scroll, .drawing")) {
    box.addEventListener("scroll", () => say(box), { passive: true });
    resized.observe(box);
  }
})();
