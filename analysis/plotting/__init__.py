"""How figures are drawn, whatever they show: colours, fonts, panels, estimates."""
