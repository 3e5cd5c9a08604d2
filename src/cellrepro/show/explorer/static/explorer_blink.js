// A and B in turn, by themselves or by hand.

class Blink {
  constructor(explorer) {
    this.explorer = explorer;
    this.side = "a"; // the one that is seen
    this.playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.perSecond = 1;
  }

  close() {
    clearTimeout(this.timer);
  }

  togglePlaying() {
    this.playing = !this.playing;
    this.schedule();
    this.explorer.redraw();
  }

  setSpeed(perSecond) {
    this.perSecond = perSecond;
    this.schedule();
    this.explorer.redraw();
  }

  // While it plays, A and B change places every 1 / perSecond seconds.
  schedule() {
    clearTimeout(this.timer);
    const { mode, parts } = this.explorer;
    parts.play.textContent = this.playing ? "Pause" : "Play";
    if (mode !== "blink" || !this.playing) return;
    this.timer = setTimeout(() => {
      this.showOther();
      this.schedule();
    }, 1000 / this.perSecond);
  }

  showOther() {
    this.side = this.side === "a" ? "b" : "a";
    this.explorer.redraw();
  }

  turnByHand() {
    if (this.explorer.mode !== "blink") this.explorer.chooseMode("blink");
    this.playing = false;
    this.schedule();
    this.showOther();
  }
}
