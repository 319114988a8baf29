// A candidate that is a controller-runtime manager with one runnable for the leader.
package main

import (
	"context"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"orchestratord/test/peers/go/contract"
)

func main() {
	ctrl.SetLogger(klog.Background())
	candidate := contract.Parse()
	lease, renew, retry := contract.LeaseDuration, contract.RenewDeadline, contract.RetryPeriod
	mgr, err := ctrl.NewManager(candidate.Config, ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: candidate.Lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &lease,
		RenewDeadline:                       &renew,
		RetryPeriod:                         &retry,
		Metrics:                             server.Options{BindAddress: "0"},
	})
	if err != nil {
		contract.Fail(err)
	}
	work := manager.RunnableFunc(func(ctx context.Context) error {
		contract.Leading()
		<-ctx.Done()
		contract.Stopped()
		return nil
	})
	if err := mgr.Add(work); err != nil {
		contract.Fail(err)
	}
	if err := mgr.Start(contract.UntilTerminated()); err != nil {
		contract.Fail(err)
	}
}
