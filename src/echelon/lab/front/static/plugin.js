// The plugin: one panel at the right side, which shows the notebook that is in front.
import { Panel } from "./panel.js";

export function makePlugin(jupyter) {
  const { INotebookTracker } = jupyter.notebook;
  const { ICommandPalette } = jupyter.apputils;
  const { ILayoutRestorer } = jupyter.application;
  return {
    id: "echelon:panel",
    description: "Tag a notebook's cells as steps, and run them as a pipeline.",
    autoStart: true,
    requires: [INotebookTracker],
    optional: [ICommandPalette, ILayoutRestorer],
    activate: (app, tracker, palette, restorer) => {
      const style = document.createElement("link");
      style.rel = "stylesheet";
      style.href = new URL("style.css", import.meta.url).href;
      document.head.append(style);

      const panel = new Panel(jupyter.services.ServerConnection, () => widget.isVisible);
      const widget = new (class extends jupyter.widgets.Widget {
        onAfterShow() { panel.shown(); }
        onActivateRequest() { setTimeout(() => panel.focus(), 100); }  // the palette gives the focus back when it closes
      })({ node: panel.node });
      widget.id = "echelon-panel";
      widget.title.label = "Pipeline";
      widget.title.caption = "Pipeline";  // Notebook 7 has it in its menu: Show Pipeline
      widget.title.closable = true;
      app.shell.add(widget, "right", { rank: 900 });
      restorer?.add(widget, "echelon-panel");

      const command = "echelon:show-panel";
      app.commands.addCommand(command, {
        label: "Show the Pipeline Panel",
        caption: "Tag cells as steps, and run them as a pipeline",
        execute: () => app.shell.activateById(widget.id),
      });
      palette?.addItem({ command, category: "Notebook Operations" });
      panel.leave = () => tracker.currentWidget && app.shell.activateById(tracker.currentWidget.id);

      tracker.currentChanged.connect((_tracker, current) => panel.watch(current));
      tracker.activeCellChanged.connect(() => panel.cellChanged());
      panel.watch(tracker.currentWidget);
    },
  };
}
