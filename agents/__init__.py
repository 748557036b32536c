"""What answers: model endpoints, agents, the tool loop and the toolbox."""
