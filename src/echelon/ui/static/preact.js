// The one place that names the released file.
export { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from "/static/vendor/htm-preact-standalone-3.1.1.js";
