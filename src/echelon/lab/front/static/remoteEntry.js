// What JupyterLab loads: an entry of module federation, written by hand, so that nothing has to be built. Packages of
// JupyterLab itself come from its shared scope; the panel's own files are modules beside this one.
(() => {
  const here = document.currentScript.src;
  let scope = {};
  const shared = async name => {
    const versions = scope[name] || {};
    const chosen = Object.values(versions).find(each => each.loaded) || Object.values(versions)[0];
    if (!chosen) throw new Error(`echelon: this JupyterLab shares no ${name}`);
    return (await chosen.get())();
  };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB.echelon = {
    init: given => { scope = given; },
    get: async () => {
      const names = ["notebook", "services", "apputils", "application"].map(name => `@jupyterlab/${name}`);
      const [notebook, services, apputils, application, widgets] =
        await Promise.all([...names, "@lumino/widgets"].map(shared));
      const { makePlugin } = await import(new URL("plugin.js", here));
      const plugin = makePlugin({ notebook, services, apputils, application, widgets });
      return () => ({ __esModule: true, default: plugin });
    },
  };
})();
