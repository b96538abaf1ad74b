"""The console: the control plane's pages for people, below /console on the admin listener.

It is a client of the endpoints that the API and the command line use, called in this process as whoever has signed in;
it decides nothing itself. `site` is the way in.

A page is a function from a `Visit` to a `Response` in the table `PAGES` of its module. Its template extends
`layout.html`, whose blocks are `title`, `main` and `scripts`; those of one service extend `service.html`, whose blocks
are `title`, `panel` and `scripts`. Templates get `user`, `lang`, `theme`, `csrf`, `t` (a text of `texts/*.json` in the
visitor's language), `static` (the address of a file in `static/`) and what the page gives them. Scripts are modules
below `static/`; nothing is inline, for the content security policy allows none. A form carries the hidden field `csrf`;
a script that calls the control API sends the `csrf-token` meta's content as `X-CSRF-Token`.
"""
