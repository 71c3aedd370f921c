// Guides rank above studies, and those above the API. American spelling finds the British one.
var Scorer = {
  objNameMatch: 3, objPartialMatch: 1, objPrio: { 0: 0, 1: 0, 2: -5 }, objPrioDefault: 0,
  title: 30, partialTitle: 12, term: 6, partialTerm: 1,
  score: ([page, , , , score]) => score +
    (/which-init/.test(page) ? 40 : /^docs\/(?!reference)|^README/.test(page) ? 30 : /^results|^docs|^[A-Z]/.test(page) ? 0 : 15) -
    (/-tuning|board|CHANGELOG|CONTRIBUTING|docs\/reference/.test(page) ? 15 : 0),
};
var splitQuery = (query) => query
  .replace(/ization/g, "isation")
  .replace(/\b(\d+)k\b/g, "$1,000")
  .split(/[^\p{Letter}\p{Number}_\p{Emoji_Presentation}]+/gu)
  .filter((word) => word);
