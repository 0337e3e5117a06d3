package main

// goVariables are the environment variables that the Go programs read. What an engine gives to its node proxies is the node
// proxy's own.
var goVariables = []struct{ Name, Program, Meaning string }{
	{"RUST_LOG", "`lateen up`", "what the node proxies of the mesh log, as they read it themselves; `info` if it is not set"},
	{"PATH", "`lateen up`", "the PATH of pods: its folders that every user can reach go before the usual ones"},
	{"TERM", "`lateen`", "`dumb`: no cursor movements; `lateen exec` tells it to what it runs on a terminal"},
	{"NO_COLOR", "`lateen`", "set to anything: no colours"},
}
