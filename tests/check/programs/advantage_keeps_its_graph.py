import torch

torch.manual_seed(0)
actor, critic = torch.nn.Linear(2, 3), torch.nn.Linear(2, 1)
opt = torch.optim.SGD([*actor.parameters(), *critic.parameters()], lr=0.1)
states, actions, returns = torch.randn(4, 2), torch.tensor([0, 1, 2, 0]), torch.randn(4)
for _ in range(2):
    value = critic(states).squeeze(1)
    advantage = returns - value  # made
    log_prob = actor(states).log_softmax(1).gather(1, actions[:, None]).squeeze(1)
    policy_loss = -(log_prob * advantage).mean()  # PL514 used
    loss = policy_loss + torch.nn.functional.mse_loss(value, returns)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
