// Snippets of the search where the site lies on a disk: a browser lets no page fetch from file://.
if (location.protocol === "file:") {
  const here = new URL(".", location.href).href;
  const fetched = window.fetch;
  window.fetch = (url, ...rest) => {
    const page = new URL(url, location.href).href.split(/[?#]/)[0].slice(here.length);
    return page in TEXTS ? Promise.resolve(new Response(TEXTS[page])) : fetched(url, ...rest);
  };
}
