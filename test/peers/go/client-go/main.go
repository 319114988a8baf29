// A candidate that uses client-go's leaderelection as it stands.
package main

import (
	"context"

	"k8s.io/client-go/tools/leaderelection"

	"orchestratord/test/peers/go/contract"
)

func main() {
	candidate := contract.Parse()
	leaderelection.RunOrDie(contract.UntilTerminated(), leaderelection.LeaderElectionConfig{
		Lock:            candidate.Lock,
		LeaseDuration:   contract.LeaseDuration,
		RenewDeadline:   contract.RenewDeadline,
		RetryPeriod:     contract.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { contract.Leading() },
			OnStoppedLeading: contract.Stopped,
		},
	})
}
