"""Log-probabilities are collected in a list because one backward at the end of the episode needs all of them."""

import torch

torch.manual_seed(0)
policy = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.01)
reward_mean = torch.zeros(())
for episode in range(3):
    log_probs, rewards = [], []
    for step in range(4):
        choice = torch.distributions.Categorical(logits=policy(torch.randn(3)))
        action = choice.sample()
        log_prob = choice.log_prob(action)
        log_probs.append(log_prob)
        rewards.append(float(action))
    returns = torch.tensor(rewards)
    reward_mean = 0.9 * reward_mean + 0.1 * returns.mean()
    loss = -(torch.stack(log_probs) * (returns - reward_mean)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(reward_mean)
