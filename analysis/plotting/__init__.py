"""Drawing tools of all figures: colours, fonts, panels, estimates."""
