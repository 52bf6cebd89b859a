"""The live panel: a widget, what it draws, and the table that stays when it is gone."""
