package cli

// The commands by what they are about. Each type makes the cobra commands of one group and carries them out. What all groups share
// (streams, flags, the engine that is meant, hints) is the app's.
type (
	// lifecycleCommands begin and end meshes of this machine, and speak of the command itself.
	lifecycleCommands struct{ app *app }
	// readCommands show objects, and wait for what becomes of them.
	readCommands struct{ app *app }
	// changeCommands change objects.
	changeCommands struct{ app *app }
	// effects tell what a change of objects will do, or has done.
	effects struct{ app *app }
	// podCommands reach into pods, and show their connections.
	podCommands struct{ app *app }
	// statusCommands show how meshes fare.
	statusCommands struct{ app *app }
	// proxyCommands look into node proxies and the certificate authority.
	proxyCommands struct{ app *app }
	// labCommands measure.
	labCommands struct{ app *app }
	// waypointCommands make, show and remove waypoints.
	waypointCommands struct{ app *app }
	// installCommands install a mesh on Kubernetes, upgrade it and remove it.
	installCommands struct{ app *app }
)
